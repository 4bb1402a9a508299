/* SPDX-License-Identifier: Apache-2.0 */

/* The metrics: one row each, in the order of the manual page. */

#include "daemon/http/metrics.h"
#include "util/setting.h"

/* The C type of a form's field; a field of another type does not compile. */
#define TYPE_BOOL    bool
#define TYPE_U32     uint32_t
#define TYPE_U64     uint64_t
#define TYPE_NS      uint64_t
#define TYPE_SLICE   uint64_t
#define TYPE_PERCENT uint32_t
#define TYPE_DOUBLE  double
#define TYPE_BUCKETS struct histogram

#define ROW(its_scope, owner, its_type, its_form, its_name, its_label, field, text)           \
	{                                                                                     \
		.name = "nvshare_" its_name, .label = (its_label), .help = (text),            \
		.type = METRICS_##its_type, .scope = (its_scope), .form = METRICS_##its_form, \
		.offset = SETTING_AT(struct owner, field, TYPE_##its_form),                   \
	}
#define NODE(type, form, name, field, text) \
	ROW(METRICS_OF_NODE, metrics_node, type, form, name, NULL, field, text)
#define NODE_BY(type, form, name, label, field, text) \
	ROW(METRICS_OF_NODE, metrics_node, type, form, name, label, field, text)
#define GPU(type, form, name, field, text) \
	ROW(METRICS_OF_GPU, metrics_gpu, type, form, name, NULL, field, text)
#define GPU_BY(type, form, name, label, field, text) \
	ROW(METRICS_OF_GPU, metrics_gpu, type, form, name, label, field, text)
#define CLIENT(type, form, name, field, text) \
	ROW(METRICS_OF_CLIENT, metrics_client, type, form, name, NULL, field, text)
#define CLIENT_BY(type, form, name, label, field, text) \
	ROW(METRICS_OF_CLIENT, metrics_client, type, form, name, label, field, text)
#define INFO(its_scope, its_name, text)                                                       \
	{                                                                                     \
		.name = "nvshare_" its_name, .help = (text), .scope = METRICS_OF_##its_scope, \
		.form = METRICS_INFO                                                          \
	}

#define CRITICAL "class=\"latency-critical\""
#define OTHER    "class=\"best-effort\""

#define EVENT(its_type, value, text) \
	NODE_BY(COUNTER, U64, "events_total", "type=\"" its_type "\"", n_events[value], text)
#define STATE(its_state, value, text) \
	GPU_BY(GAUGE, BOOL, "gpu_state", "state=\"" its_state "\"", is_state[value], text)

#define END(its_end, value, text) \
	NODE_BY(COUNTER, U64, "jobs_ended_total", "end=\"" its_end "\"", n_jobs_ended[value], text)

/* A new one needs a row. */
_Static_assert(NVSHARE_JOB_END_COUNT == 8, "rows of jobs_ended_total");
_Static_assert(NVSHARE_EVENT_COUNT == 8 && NVSHARE_STATE_COUNT == 4,
	       "rows of events_total, gpu_state");

const struct metrics_row metrics_table[] = {
	INFO(NODE, "build_info",
	     "The scheduler's version, mode, policy and rule of turns, as labels."),
	NODE(GAUGE, NS, "scheduler_uptime_seconds", status.uptime_ns,
	     "Time since the scheduler started."),
	NODE(GAUGE, U32, "scheduler_clients", status.n_clients, "Clients of all GPUs."),
	NODE(GAUGE, U32, "scheduler_clients_unlisted", n_unlisted,
	     "Clients that are in the sums of their GPU, and have no series."),
	NODE(GAUGE, U32, "scheduler_gangs", n_gangs,
	     "Gangs: clients that run on all of their GPUs together, or on none."),
	NODE(GAUGE, U32, "scheduler_gang_members", n_gang_members, "Clients that are in a gang."),
	NODE(GAUGE, U64, "host_memory_lent_bytes", pool.lent,
	     "Host memory that programs have on loan for memory that is off the card."),
	NODE(GAUGE, U64, "host_memory_ready_bytes", pool.ready,
	     "Host memory that is kept for the next program, and lent to none."),
	NODE(GAUGE, U32, "host_memory_borrowers", pool.n_borrowers,
	     "Programs that have host memory on loan."),
	NODE(GAUGE, U32, "scheduler_anti_thrash", status.anti_thrash,
	     "1: clients take turns. 0: nobody does."),
	NODE(GAUGE, NS, "scheduler_quantum_seconds", status.tq_ns,
	     "The length of a turn in mode concurrent, as set."),
	NODE(GAUGE, U32, "scheduler_switch_time_multiplier", status.switch_multiplier,
	     "A turn lasts so many times the time of a switch, as set."),
	NODE_BY(GAUGE, NS, "scheduler_switch_time_seconds", "bound=\"fixed\"",
		status.switch_fixed_ns,
		"Bounds of a turn's length outside mode concurrent, as set."),
	NODE_BY(GAUGE, NS, "scheduler_switch_time_seconds", "bound=\"max\"", status.switch_max_ns,
		NULL),
	NODE_BY(GAUGE, NS, "scheduler_switch_time_seconds", "bound=\"min\"", status.switch_min_ns,
		NULL),
	NODE(GAUGE, NS, "scheduler_max_runtime_seconds", status.max_runtime_ns,
	     "The longest run while others wait, as set."),
	NODE(GAUGE, NS, "scheduler_wait_bound_seconds", wait_bound_ns,
	     "The bound on any wait of a user, as set."),
	NODE(GAUGE, PERCENT, "scheduler_memory_reserve_ratio", status.reserve_percent,
	     "The part of each GPU's memory that no program gets."),
	NODE(COUNTER, U64, "scheduler_log_lines_dropped_total", n_lines_dropped,
	     "Lines of the log that found no room."),
	NODE(COUNTER, U64, "http_answers_total", n_answers, "Answers to requests by HTTP."),
	EVENT("gpu_back", NVSHARE_EVENT_GPU_BACK, "Events that nvsharectl events shows, by type."),
	EVENT("gpu_error", NVSHARE_EVENT_GPU_ERROR, NULL),
	EVENT("gpu_unrecoverable", NVSHARE_EVENT_GPU_UNRECOVERABLE, NULL),
	EVENT("gpu_xid", NVSHARE_EVENT_GPU_XID, NULL),
	EVENT("monitor_down", NVSHARE_EVENT_MONITOR_DOWN, NULL),
	EVENT("worker_back", NVSHARE_EVENT_WORKER_BACK, NULL),
	EVENT("worker_down", NVSHARE_EVENT_WORKER_DOWN, NULL),

	NODE(GAUGE, U32, "jobs_waiting", n_jobs_waiting, "Jobs that wait for a GPU."),
	NODE(GAUGE, U32, "jobs_running", n_jobs_running,
	     "Jobs that have a GPU, or rest before they are tried again."),
	NODE(COUNTER, U64, "jobs_submitted_total", n_jobs_submitted, "Jobs that were submitted."),
	NODE(COUNTER, U64, "jobs_refused_total", n_jobs_refused,
	     "Jobs that were refused, because they could never start."),
	NODE(COUNTER, U64, "jobs_started_total", n_jobs_started, "Starts of jobs."),
	NODE(COUNTER, U64, "jobs_retried_total", n_jobs_retried,
	     "Jobs that failed, and were to be tried again."),
	NODE(COUNTER, U64, "jobs_failed_total", n_jobs_failed,
	     "Jobs whose command ended with a signal, or not with 0."),
	END("cancel", NVSHARE_JOB_END_CANCEL, "Jobs that ended, by how."),
	END("exit", NVSHARE_JOB_END_EXIT, NULL),
	END("gave_up", NVSHARE_JOB_END_GAVE_UP, NULL),
	END("gone", NVSHARE_JOB_END_GONE, NULL),
	END("never", NVSHARE_JOB_END_NEVER, NULL),
	END("limit", NVSHARE_JOB_END_LIMIT, NULL),
	END("lost", NVSHARE_JOB_END_LOST, NULL),
	NODE(HISTOGRAM, BUCKETS, "jobs_queue_wait_seconds", jobs_wait,
	     "Time from a job's submission to its start."),

	INFO(GPU, "gpu_info", "The GPU's name, as label."),
	STATE("error", NVSHARE_STATE_ERROR,
	      "1: the GPU is in this state. 0: it is in another one."),
	STATE("good", NVSHARE_STATE_GOOD, NULL),
	STATE("lost", NVSHARE_STATE_LOST, NULL),
	STATE("unknown", NVSHARE_STATE_UNKNOWN, NULL),
	GPU(GAUGE, BOOL, "gpu_out", is_out,
	    "1: the GPU has an error, and no client gets a turn there."),
	GPU(GAUGE, DOUBLE, "gpu_temperature_celsius", celsius,
	    "The GPU's temperature by NVML; no series: unknown."),
	GPU(GAUGE, DOUBLE, "gpu_power_watts", watts,
	    "Power that the GPU draws by NVML; no series: unknown."),
	GPU(COUNTER, DOUBLE, "gpu_energy_joules_total", joules,
	    "Energy since the driver was loaded by NVML; no series: unknown."),
	GPU(GAUGE, DOUBLE, "gpu_nvml_utilization_ratio", nvml_ratio,
	    "Part of NVML's last period in which any program's kernel ran; no series: unknown."),
	GPU(GAUGE, U64, "gpu_memory_total_bytes", status.total, "The GPU's memory."),
	GPU(GAUGE, U64, "gpu_memory_usable_bytes", status.usable,
	    "The GPU's memory without the reserve."),
	GPU(GAUGE, U64, "gpu_memory_used_bytes", used,
	    "Memory on the card that clients or others have."),
	GPU(GAUGE, U64, "gpu_memory_external_bytes", status.external,
	    "Memory that is used outside the clients."),
	GPU(GAUGE, U64, "gpu_memory_available_bytes", status.available,
	    "Usable memory that neither clients nor others have."),
	GPU(GAUGE, U64, "gpu_memory_running_bytes", status.running,
	    "Memory charged to clients that run."),
	GPU(GAUGE, U64, "gpu_memory_resident_bytes", resident,
	    "Memory of clients that is on the card and can move."),
	GPU(GAUGE, U64, "gpu_memory_pinned_bytes", pinned,
	    "Memory of clients that is on the card and cannot move."),
	GPU(GAUGE, U64, "gpu_memory_swapped_bytes", swapped,
	    "Memory of clients that is in host memory."),
	GPU(GAUGE, U64, "gpu_memory_host_bytes", host,
	    "Host memory that clients have for what is swapped, used or not."),
	GPU(GAUGE, U64, "gpu_context_memory_bytes", status.contexts,
	    "Memory of the clients' contexts."),
	GPU(GAUGE, U64, "gpu_context_memory_peak_bytes", status.contexts_max,
	    "The most memory of contexts so far."),
	GPU(GAUGE, U32, "gpu_outsiders", status.n_outsiders,
	    "Processes that use the GPU without nvshare."),
	GPU(GAUGE, U64, "gpu_outsiders_memory_bytes", status.outside, "Memory of these."),
	GPU(GAUGE, U32, "gpu_clients", status.n_clients, "Clients of the GPU."),
	GPU(GAUGE, U32, "gpu_clients_running", status.n_running, "Clients that run."),
	GPU(GAUGE, U32, "gpu_clients_paused", n_paused, "Clients that an operator has paused."),
	GPU(GAUGE, U32, "gpu_clients_hung", n_hung, "Clients that did not answer in time."),
	GPU(GAUGE, U32, "gpu_clients_stopped", n_stopped,
	    "Clients whose process is stopped (Ctrl-Z, a debugger, a frozen control group)."),
	GPU(GAUGE, U32, "gpu_clients_not_preemptible", n_unstoppable,
	    "Clients whose last three stops failed."),
	GPU(GAUGE, U32, "gpu_clients_doubted", n_doubted,
	    "Clients that report more memory than is on the card."),
	GPU(GAUGE, DOUBLE, "gpu_utilization_ratio", busy_ratio,
	    "GPU time of all clients by the time since the first client, from 0 to 1."),
	GPU(COUNTER, NS, "gpu_known_seconds_total", status.known_ns,
	    "Time since the first client."),
	GPU_BY(COUNTER, NS, "gpu_busy_seconds_total", CRITICAL, status.lc_gpu_ns,
	       "GPU time of clients, by class."),
	GPU_BY(COUNTER, NS, "gpu_busy_seconds_total", OTHER, status.be_gpu_ns, NULL),
	GPU_BY(COUNTER, U64, "gpu_tasks_total", CRITICAL, status.n_lc_tasks,
	       "Requests and bursts that ended, by class."),
	GPU_BY(COUNTER, U64, "gpu_tasks_total", OTHER, status.n_be_tasks, NULL),
	GPU(COUNTER, U64, "gpu_slo_violations_total", status.n_slo_violations,
	    "Requests and bursts that took longer than their SLO."),

	GPU(GAUGE, U32, "scheduler_queue_size", status.n_waiting, "Clients that wait."),
	GPU_BY(GAUGE, U32, "scheduler_waiters", "reason=\"gang\"", n_waiters[NVSHARE_WAIT_GANG],
	       "Clients that are chosen or wait, by reason."),
	GPU_BY(GAUGE, U32, "scheduler_waiters", "reason=\"memory\"", n_waiters[NVSHARE_WAIT_MEMORY],
	       NULL),
	GPU_BY(GAUGE, U32, "scheduler_waiters", "reason=\"outsiders\"",
	       n_waiters[NVSHARE_WAIT_OUTSIDERS], NULL),
	GPU_BY(GAUGE, U32, "scheduler_waiters", "reason=\"stuck\"", n_waiters[NVSHARE_WAIT_STUCK],
	       NULL),
	GPU_BY(GAUGE, U32, "scheduler_waiters", "reason=\"swap\"", n_waiters[NVSHARE_WAIT_SWAP],
	       NULL),
	GPU_BY(GAUGE, U32, "scheduler_waiters", "reason=\"turn\"", n_waiters[NVSHARE_WAIT_TURN],
	       NULL),
	GPU(COUNTER, U64, "scheduler_schedule_total", n_grants, "Grants to run."),
	GPU(COUNTER, U64, "scheduler_schedule_failures_total", n_stop_failures,
	    "Stops that failed, and were tried again."),
	GPU(COUNTER, U64, "scheduler_out_of_memory_total", n_refusals,
	    "Allocations refused because no turn could make room."),
	GPU(HISTOGRAM, BUCKETS, "scheduler_queue_wait_seconds", queue_wait,
	    "Time from a request to its grant."),
	GPU(GAUGE, DOUBLE, "scheduler_next_switch_seconds", next_switch_seconds,
	    "Time until the next planned switch; no series: none is planned."),
	GPU(COUNTER, U64, "gpu_switches_total", status.n_switches,
	    "Times that a waiter took a client's place."),
	GPU(HISTOGRAM, BUCKETS, "gpu_switch_stop_seconds", stop,
	    "Time from the order to stop until the client has stopped and moved its memory."),
	GPU(HISTOGRAM, BUCKETS, "gpu_switch_wake_seconds", wake,
	    "Time from the choice of a waiter to its grant: room is made, and its memory comes in."),
	GPU_BY(COUNTER, U64, "gpu_swap_bytes_total", "direction=\"in\"", status.moved_in,
	       "Bytes moved between card and host memory."),
	GPU_BY(COUNTER, U64, "gpu_swap_bytes_total", "direction=\"out\"", status.moved_out, NULL),
	GPU(GAUGE, U64, "gpu_swap_bytes_per_second", status.bandwidth,
	    "Measured speed of these moves; 0: not measured yet."),
	GPU(GAUGE, U64, "gpu_link_bytes_per_second", status.link_bandwidth,
	    "Speed that the link should reach; 0: unknown."),

	GPU(COUNTER, U64, "preemptions_total", status.n_preemptions,
	    "Times that a client went off the GPU for a latency-critical one."),
	GPU(COUNTER, U64, "preempt_failures_total", status.n_preempt_failures,
	    "Preemptions that failed."),
	GPU(COUNTER, U64, "preempt_timeouts_total", status.n_preempt_timeouts,
	    "Preemptions that took too long."),
	GPU(HISTOGRAM, BUCKETS, "preempt_latency_seconds", preempt,
	    "Time from the order until the last client is off the GPU."),
	GPU(GAUGE, NS, "preempt_latency_max_seconds", status.preempt_ns_max,
	    "The longest of these so far."),
	GPU_BY(GAUGE, NS, "preempt_overhead_seconds", "rank=\"max\"", status.preempt_over_ns_max,
	       "The part of recent preemptions that is messages and waking up."),
	GPU_BY(GAUGE, NS, "preempt_overhead_seconds", "rank=\"p50\"", status.preempt_over_ns_p50,
	       NULL),
	GPU_BY(GAUGE, NS, "preempt_overhead_seconds", "rank=\"p99\"", status.preempt_over_ns_p99,
	       NULL),
	GPU(COUNTER, U64, "hints_total", status.n_hints, "Hints of latency-critical clients."),
	GPU(COUNTER, U64, "hints_missed_total", status.n_hints_missed,
	    "Hints that were withdrawn or lapsed after others were preempted."),
	GPU(GAUGE, NS, "hint_error_seconds", status.hint_error_ns,
	    "Average time from a request's predicted begin to the true one."),

	INFO(CLIENT, "client_info", "The client's process, name and claim, as labels."),
	CLIENT(GAUGE, BOOL, "client_running", is_running, "1: the client may compute."),
	CLIENT(GAUGE, DOUBLE, "client_wait_seconds", wait_seconds,
	       "How long the client has waited by now; 0: it does not wait."),
	CLIENT(GAUGE, U32, "client_queue_position", status.position,
	       "The client's place in the queue, from 1; 0: it is not there."),
	CLIENT(GAUGE, BOOL, "client_paused", is_paused, "1: an operator has paused the client."),
	CLIENT(GAUGE, BOOL, "client_hung", is_hung, "1: the client did not answer in time."),
	CLIENT(GAUGE, BOOL, "client_stopped", is_stopped, "1: the client's process is stopped."),
	CLIENT(GAUGE, BOOL, "client_doubted", is_doubted,
	       "1: the client reports more memory than is on the card."),
	CLIENT(GAUGE, BOOL, "client_preemptible", is_preemptible,
	       "0: the client's last three stops failed."),
	CLIENT(GAUGE, U64, "client_memory_budget_bytes", status.budget,
	       "Memory that the client may have on the card."),
	CLIENT_BY(GAUGE, U64, "client_memory_bytes", "kind=\"pinned\"", pinned,
		  "The client's memory: on the card, movable or not, and in host memory."),
	CLIENT_BY(GAUGE, U64, "client_memory_bytes", "kind=\"resident\"", status.mem.resident,
		  NULL),
	CLIENT_BY(GAUGE, U64, "client_memory_bytes", "kind=\"swapped\"", status.mem.swapped, NULL),
	CLIENT(GAUGE, U64, "client_memory_wanted_bytes", wanted,
	       "Memory that a blocked allocation lacks; 0: none waits."),
	CLIENT(GAUGE, U64, "client_host_memory_bytes", status.mem.host,
	       "Host memory that the client has for what is swapped, used or not."),
	CLIENT(GAUGE, U64, "client_clean_bytes", clean.bytes,
	       "Memory on the card that can leave without a copy: host memory has the same bytes."),
	CLIENT(COUNTER, U64, "client_copied_ahead_bytes_total", clean.copied,
	       "Bytes copied to host memory before others needed the room."),
	CLIENT(COUNTER, U64, "client_not_copied_bytes_total", clean.saved,
	       "Bytes that left the card without a copy, since their last copy still held."),
	CLIENT(COUNTER, NS, "client_run_seconds_total", status.run_ns, "Time with a grant to run."),
	CLIENT(COUNTER, NS, "client_gpu_seconds_total", status.gpu_ns, "GPU time."),
	CLIENT(COUNTER, NS, "client_held_seconds_total", status.held_ns,
	       "Time off the GPU for others, or by the client's limit."),
	CLIENT(COUNTER, U64, "client_switches_total", status.n_switches,
	       "Times that the client was stopped for others."),
	CLIENT(COUNTER, U64, "client_tasks_total", status.n_tasks,
	       "Requests and bursts that ended."),
	CLIENT(COUNTER, U64, "client_slo_violations_total", status.n_slo_violations,
	       "Requests and bursts that took longer than the SLO."),
	CLIENT(COUNTER, U64, "client_hints_total", status.n_hints, "Hints of the client."),
	CLIENT(GAUGE, DOUBLE, "client_slo_seconds", slo_seconds,
	       "The client's SLO; no series: it has none."),
	CLIENT(GAUGE, DOUBLE, "client_compute_limit_ratio", compute_limit,
	       "The client's limit of GPU time; no series: it has none."),
	CLIENT(GAUGE, SLICE, "client_timeslice_seconds", status.slice_us,
	       "The client's timeslice; 0: the driver's default."),
	CLIENT(COUNTER, DOUBLE, "client_energy_joules_total", energy_joules,
	       "Energy, estimated from GPU time and power; no series: unknown."),
	CLIENT(GAUGE, DOUBLE, "client_orion_clients", orion_clients,
	       "Clients of the scheduler inside the process; no series: there is none."),
	CLIENT(GAUGE, DOUBLE, "client_orion_clients_waiting", orion_waiting,
	       "Clients of the scheduler inside the process that wait."),
	CLIENT_BY(COUNTER, DOUBLE, "client_orion_operations_total", "class=\"best-effort\"",
		  orion_be_ops,
		  "Operations that the scheduler inside the process has let go, by class."),
	CLIENT_BY(COUNTER, DOUBLE, "client_orion_operations_total", "class=\"high-priority\"",
		  orion_hp_ops, NULL),
	CLIENT(COUNTER, DOUBLE, "client_orion_waits_total", orion_be_waits,
	       "Best-effort operations that had to wait inside the process."),
	CLIENT(COUNTER, DOUBLE, "client_orion_wait_seconds_total", orion_wait_seconds,
	       "Time that best-effort operations waited inside the process."),
};
const size_t metrics_table_len = sizeof(metrics_table) / sizeof(metrics_table[0]);
