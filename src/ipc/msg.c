/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/msg.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

/* Layouts are the protocol: a compiler that pads in another way must not build. */
_Static_assert(sizeof(struct nvshare_msg_header) == 16, "header");
_Static_assert(sizeof(struct nvshare_mem) == 128, "mem");
_Static_assert(sizeof(struct nvshare_register) == 376, "register");
_Static_assert(sizeof(struct nvshare_registered) == 40, "registered");
_Static_assert(sizeof(struct nvshare_req_lock) == 128, "req_lock");
_Static_assert(sizeof(struct nvshare_lock_ok) == 24, "lock_ok");
_Static_assert(sizeof(struct nvshare_drop_lock) == 64, "drop_lock");
_Static_assert(sizeof(struct nvshare_lock_released) == 184, "lock_released");
_Static_assert(sizeof(struct nvshare_mem_update) == 168, "mem_update");
_Static_assert(sizeof(struct nvshare_wait_for_mem) == 16, "wait_for_mem");
_Static_assert(sizeof(struct nvshare_status_node) == 112, "status_node");
_Static_assert(sizeof(struct nvshare_status_gpu) == 456, "status_gpu");
_Static_assert(sizeof(struct nvshare_get_status) == 8, "get_status");
_Static_assert(sizeof(struct nvshare_status_state) == 72, "status_state");
_Static_assert(sizeof(struct nvshare_gpu_state) == 8, "gpu_state");
_Static_assert(sizeof(struct nvshare_status_outsider) == 80, "status_outsider");
_Static_assert(sizeof(struct nvshare_status_client) == 544, "status_client");
_Static_assert(sizeof(struct nvshare_set) == 16, "set");
_Static_assert(sizeof(struct nvshare_activity) == 48, "activity");
_Static_assert(sizeof(struct nvshare_set_share) == 48, "set_share");
_Static_assert(sizeof(struct nvshare_share_set) == 24, "share_set");
_Static_assert(sizeof(struct nvshare_host_memory) == 16, "host_memory");
_Static_assert(sizeof(struct nvshare_handover) == 8, "handover");
_Static_assert(sizeof(struct nvshare_slabs) == 8, "slabs");
_Static_assert(sizeof(struct nvshare_status_pool) == 32, "status_pool");
_Static_assert(sizeof(struct nvshare_result_msg) == 260, "result_msg");
_Static_assert(sizeof(struct nvshare_set_text) == 616, "set_text");
_Static_assert(sizeof(struct nvshare_get_config) == 8, "get_config");
_Static_assert(sizeof(struct nvshare_config) == 880, "config");
_Static_assert(sizeof(struct nvshare_get_trace) == 16, "get_trace");
_Static_assert(sizeof(struct nvshare_trace_entry) == 32, "trace_entry");
_Static_assert(sizeof(struct nvshare_trace) == 992, "trace");
_Static_assert(sizeof(struct nvshare_get_events) == 16, "get_events");
_Static_assert(sizeof(struct nvshare_event) == 352, "event");
_Static_assert(sizeof(struct nvshare_submit) == 672, "submit");
_Static_assert(sizeof(struct nvshare_submit_gang) == 808, "submit_gang");
_Static_assert(sizeof(struct nvshare_job_ref) == 8, "job_ref");
_Static_assert(sizeof(struct nvshare_job_ended) == 16, "job_ended");
_Static_assert(sizeof(struct nvshare_job) == 592, "job");
_Static_assert(sizeof(struct nvshare_job_gang) == 144, "job_gang");
_Static_assert(sizeof(struct nvshare_get_jobs) == 16, "get_jobs");
_Static_assert(sizeof(struct nvshare_jobs_end) == 16, "jobs_end");
_Static_assert(sizeof(struct nvshare_gpu_score) == 56, "gpu_score");
_Static_assert(sizeof(struct nvshare_placement) == 920, "placement");
_Static_assert(sizeof(struct nvshare_ticket_word) == 24, "ticket_word");
_Static_assert(sizeof(struct nvshare_orion) == 40, "orion");
_Static_assert(sizeof(struct nvshare_status_orion) == 48, "status_orion");
_Static_assert(sizeof(struct nvshare_status_wait) == 24, "status_wait");
_Static_assert(sizeof(struct msg) == NVSHARE_MSG_SIZE_MAX, "msg");

/* A longer packet is cut to the limit on receipt, so no valid packet may have that size. */
#define NVSHARE_MSG(id, NAME, field, body, direction, during)                              \
	_Static_assert(sizeof(struct nvshare_msg_header) + sizeof(struct nvshare_##body) < \
			       NVSHARE_MSG_SIZE_MAX,                                       \
		       #NAME ": too long");
#include "nvshare/messages.def"
#undef NVSHARE_MSG

/* Limit of all sizes in a report: larger than any card, and 65,536 of them do not overflow. */
#define BYTES_MAX (1ull << 48)

enum direction { TO_NOBODY, TO_SCHEDULER, TO_CLIENT, TO_TOOL, BOTH };

static const struct type_info {
	const char *name;
	uint16_t size;
	enum direction direction;
} types[] = {
#define NVSHARE_MSG(id, NAME, field, body, direction, during)                             \
	[id] = {#NAME, sizeof(struct nvshare_msg_header) + sizeof(struct nvshare_##body), \
		direction},
#include "nvshare/messages.def"
#undef NVSHARE_MSG
};

static const struct type_info *type_info(uint16_t type)
{
	if (type >= sizeof(types) / sizeof(types[0]) || !types[type].name)
		return NULL;
	return &types[type];
}

static bool goes_to(enum direction direction, enum msg_to to)
{
	switch (to) {
	case MSG_TO_SCHEDULER:
		return direction == TO_SCHEDULER || direction == BOTH;
	case MSG_TO_CLIENT:
		return direction == TO_CLIENT || direction == BOTH;
	case MSG_TO_TOOL:
		return direction == TO_TOOL;
	}
	return false;
}

static bool has_nul(const char *s, size_t size)
{
	return memchr(s, '\0', size) != NULL;
}

static bool mem_in_range(const struct nvshare_mem *mem)
{
	const uint64_t parts[] = {mem->allocated,   mem->resident,      mem->swapped,
				  mem->wanted,      mem->wanted_pinned, mem->host,
				  mem->host_wanted, mem->pager_context};
	uint64_t sum = 0;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (parts[i] > BYTES_MAX)
			return false;
		sum += parts[i];
	}
	for (size_t i = 0; i < NVSHARE_PINNED_COUNT; i++) {
		if (mem->pinned[i] > BYTES_MAX)
			return false;
		sum += mem->pinned[i];
	}
	return sum <= BYTES_MAX;
}

static bool submit_has_nuls(const struct nvshare_submit *submit)
{
	return has_nul(submit->name, sizeof(submit->name)) &&
	       has_nul(submit->model, sizeof(submit->model)) &&
	       has_nul(submit->type, sizeof(submit->type)) &&
	       has_nul(submit->apart, sizeof(submit->apart)) &&
	       has_nul(submit->gpus, sizeof(submit->gpus));
}

static int check_strings(const struct msg *msg)
{
#define HAS_NUL(part, field) has_nul(msg->body.part.field, sizeof(msg->body.part.field))
	bool is_good = true;

	switch (msg->header.type) {
	case NVSHARE_MSG_REGISTER:
		is_good = HAS_NUL(registration, name) && HAS_NUL(registration, pod);
		break;
	case NVSHARE_MSG_GANG:
		is_good = HAS_NUL(gang, name);
		break;
	case NVSHARE_MSG_STATUS_GANG:
		is_good = HAS_NUL(status_gang, name);
		break;
	case NVSHARE_MSG_STATUS_NODE:
		is_good = HAS_NUL(status_node, version);
		break;
	case NVSHARE_MSG_STATUS_GPU:
		is_good = HAS_NUL(status_gpu, name);
		break;
	case NVSHARE_MSG_STATUS_OUTSIDER:
		is_good = HAS_NUL(status_outsider, name);
		break;
	case NVSHARE_MSG_STATUS_CLIENT:
		is_good = HAS_NUL(status_client, name) && HAS_NUL(status_client, pod);
		break;
	case NVSHARE_MSG_SET_TEXT:
		is_good = HAS_NUL(set_text, name) && HAS_NUL(set_text, value);
		break;
	case NVSHARE_MSG_CONFIG:
		is_good =
			HAS_NUL(config, name) && HAS_NUL(config, value) && HAS_NUL(config, origin);
		break;
	case NVSHARE_MSG_EVENT:
		is_good = HAS_NUL(event, uuid) && HAS_NUL(event, message);
		break;
	case NVSHARE_MSG_RESULT:
		is_good = HAS_NUL(result, text);
		break;
	case NVSHARE_MSG_SUBMIT:
	case NVSHARE_MSG_PLACE: /* of the same body */
		is_good = submit_has_nuls(&msg->body.submit);
		break;
	case NVSHARE_MSG_SUBMIT_GANG:
		is_good = submit_has_nuls(&msg->body.submit_gang.submit) &&
			  HAS_NUL(submit_gang, gang.name);
		break;
	case NVSHARE_MSG_JOB:
		is_good = HAS_NUL(job, gpu_uuid) && HAS_NUL(job, name) && HAS_NUL(job, model) &&
			  HAS_NUL(job, type) && HAS_NUL(job, text);
		break;
	case NVSHARE_MSG_JOB_GANG:
		is_good = HAS_NUL(job_gang, name);
		break;
	}
#undef HAS_NUL
	return is_good ? 0 : MSG_E_STRING;
}

#define REPORT_FLAGS                                                            \
	(NVSHARE_REPORT_RDMA | NVSHARE_REPORT_NO_PROC | NVSHARE_REPORT_BYPASS | \
	 NVSHARE_REPORT_RESTS)

static bool claim_in_range(const struct nvshare_claim *claim)
{
	return claim->priority < NVSHARE_PRIORITY_COUNT && claim->weight <= NVSHARE_WEIGHT_MAX &&
	       claim->slo_us <= NVSHARE_SLO_US_MAX && claim->compute_limit <= 100;
}

static bool register_in_range(const struct nvshare_register *reg)
{
	const uint32_t flags = NVSHARE_REGISTER_RUNNING | NVSHARE_REGISTER_RECONNECT |
			       NVSHARE_REGISTER_FIXED | NVSHARE_REGISTER_HANDOVER;

	return !(reg->flags & ~flags) && reg->backend <= NVSHARE_BACKEND_MANAGED &&
	       reg->gpu_total_bytes <= BYTES_MAX && mem_in_range(&reg->mem) &&
	       claim_in_range(&reg->claim);
}

static bool clean_in_range(const struct nvshare_clean *clean)
{
	return clean->bytes <= BYTES_MAX && clean->is_done <= 1;
}

static bool client_in_range(const struct nvshare_status_client *client)
{
	for (size_t i = 0; i < NVSHARE_WARNING_COUNT; i++) {
		if (client->learned[i].prefers >= NVSHARE_PREFERENCE_COUNT)
			return false;
	}
	return client->state < NVSHARE_CLIENT_STATE_COUNT && client->why < NVSHARE_WAIT_COUNT &&
	       client->backend <= NVSHARE_BACKEND_MANAGED &&
	       client->last_outcome < NVSHARE_OUTCOME_COUNT && client->halt < NVSHARE_HALT_COUNT &&
	       mem_in_range(&client->mem) && claim_in_range(&client->claim);
}

static bool orion_in_range(const struct nvshare_orion *orion)
{
	return orion->n_clients <= NVSHARE_ORION_CLIENTS_MAX &&
	       orion->n_waiting <= orion->n_clients && orion->wait_us <= NVSHARE_ORION_WAIT_US_MAX;
}

static bool trace_in_range(const struct nvshare_trace *trace)
{
	if (trace->n > NVSHARE_TRACE_PAGE)
		return false;
	for (uint32_t i = 0; i < trace->n; i++) {
		const struct nvshare_trace_entry *entry = &trace->entries[i];

		if (entry->kind >= NVSHARE_TRACE_COUNT ||
		    (entry->kind == NVSHARE_TRACE_WAIT && entry->detail >= NVSHARE_WAIT_COUNT) ||
		    (entry->kind == NVSHARE_TRACE_RELEASE &&
		     entry->detail >= NVSHARE_OUTCOME_COUNT))
			return false;
	}
	return true;
}

#define SUBMIT_FLAGS (NVSHARE_SUBMIT_WHOLE | NVSHARE_SUBMIT_NO_WAIT | NVSHARE_SUBMIT_SELF)
#define GET_JOBS_FLAGS \
	(NVSHARE_GET_JOBS_AWAIT_END | NVSHARE_GET_JOBS_ENDED | NVSHARE_GET_JOBS_GANGS)
#define ENDED_FLAGS (NVSHARE_ENDED_BEGUN | NVSHARE_ENDED_FINAL)
#define SIGNAL_MAX  64

static bool submit_in_range(const struct nvshare_submit *submit)
{
	return submit->memory <= BYTES_MAX && submit->units <= NVSHARE_JOB_UNITS_MAX &&
	       !(submit->flags & ~SUBMIT_FLAGS) && submit->priority < NVSHARE_PRIORITY_COUNT &&
	       submit->limit_sec <= NVSHARE_JOB_NO_LIMIT &&
	       submit->n_retries <= NVSHARE_JOB_RETRIES_MAX;
}

static bool submit_gang_in_range(const struct nvshare_submit_gang *submit)
{
	return submit_in_range(&submit->submit) && submit->gang.size >= 2 &&
	       submit->gang.size <= NVSHARE_GANG_SIZE_MAX && submit->gang.name[0];
}

static bool job_in_range(const struct nvshare_job *job)
{
	return job->state < NVSHARE_JOB_STATE_COUNT && job->why < NVSHARE_JOB_WHY_COUNT &&
	       job->priority < NVSHARE_PRIORITY_COUNT && !(job->flags & ~NVSHARE_JOB_FLAGS_ALL) &&
	       job->signal_now <= SIGNAL_MAX && job->end < NVSHARE_JOB_END_COUNT &&
	       job->exit_code <= 255 && job->signal <= SIGNAL_MAX;
}

static bool placement_in_range(const struct nvshare_placement *placement)
{
	if (placement->n > NVSHARE_PLACEMENT_GPUS || placement->is_estimated > 1)
		return false;
	for (size_t i = 0; i < NVSHARE_PLACEMENT_GPUS; i++) {
		if (placement->gpus[i].verdict >= NVSHARE_VERDICT_COUNT)
			return false;
	}
	return true;
}

static bool jobs_in_range(const struct msg *msg)
{
	switch (msg->header.type) {
	case NVSHARE_MSG_SUBMIT:
	case NVSHARE_MSG_PLACE:
		return submit_in_range(&msg->body.submit);
	case NVSHARE_MSG_SUBMIT_GANG:
		return submit_gang_in_range(&msg->body.submit_gang);
	case NVSHARE_MSG_JOB_ENDED:
		return msg->body.job_ended.exit_code <= 255 &&
		       msg->body.job_ended.signal <= SIGNAL_MAX &&
		       !(msg->body.job_ended.flags & ~ENDED_FLAGS);
	case NVSHARE_MSG_GET_JOBS:
		return !(msg->body.get_jobs.flags & ~GET_JOBS_FLAGS);
	case NVSHARE_MSG_JOB:
		return job_in_range(&msg->body.job);
	case NVSHARE_MSG_JOB_GANG:
		return msg->body.job_gang.size <= NVSHARE_GANG_SIZE_MAX;
	case NVSHARE_MSG_PLACEMENT:
		return placement_in_range(&msg->body.placement);
	}
	return true;
}

static int check_ranges(const struct msg *msg)
{
	bool is_good = true;

	switch (msg->header.type) {
	case NVSHARE_MSG_REGISTER:
		is_good = register_in_range(&msg->body.registration);
		break;
	case NVSHARE_MSG_REQ_LOCK:
		is_good = mem_in_range(&msg->body.req_lock.mem);
		break;
	case NVSHARE_MSG_LOCK_RELEASED:
		is_good = msg->body.lock_released.outcome < NVSHARE_OUTCOME_COUNT &&
			  msg->body.lock_released.moved <= BYTES_MAX &&
			  msg->body.lock_released.wants <= 1 &&
			  msg->body.lock_released.halt < NVSHARE_HALT_COUNT &&
			  !(msg->body.lock_released.flags & ~REPORT_FLAGS) &&
			  mem_in_range(&msg->body.lock_released.mem);
		break;
	case NVSHARE_MSG_MEM_UPDATE:
		is_good = msg->body.mem_update.halt < NVSHARE_HALT_COUNT &&
			  msg->body.mem_update.moved <= BYTES_MAX &&
			  !(msg->body.mem_update.flags & ~REPORT_FLAGS) &&
			  mem_in_range(&msg->body.mem_update.mem);
		break;
	case NVSHARE_MSG_WAIT_FOR_MEM:
		is_good = msg->body.wait_for_mem.why < NVSHARE_WAIT_COUNT;
		break;
	case NVSHARE_MSG_REGISTERED:
		is_good = msg->body.registered.result <= NVSHARE_REGISTER_VERSION &&
			  msg->body.registered.reserve_percent <= NVSHARE_RESERVE_PERCENT_MAX &&
			  (msg->body.registered.result != NVSHARE_REGISTER_OK ||
			   claim_in_range(&msg->body.registered.claim));
		break;
	case NVSHARE_MSG_STATUS_NODE:
		is_good = msg->body.status_node.mode < NVSHARE_MODE_COUNT &&
			  msg->body.status_node.switch_mode < NVSHARE_SWITCH_COUNT &&
			  msg->body.status_node.policy < NVSHARE_POLICY_COUNT;
		break;
	case NVSHARE_MSG_STATUS_GPU:
		is_good = msg->body.status_gpu.mode < NVSHARE_MODE_COUNT &&
			  msg->body.status_gpu.switch_mode < NVSHARE_SWITCH_COUNT;
		break;
	case NVSHARE_MSG_STATUS_CLIENT:
		is_good = client_in_range(&msg->body.status_client);
		break;
	case NVSHARE_MSG_STATUS_STATE:
		is_good = msg->body.status_state.state < NVSHARE_STATE_COUNT &&
			  msg->body.status_state.is_mig <= 1 &&
			  !(msg->body.status_state.known & ~NVSHARE_STATE_KNOWS_ALL);
		break;
	case NVSHARE_MSG_GPU_STATE:
		is_good = msg->body.gpu_state.state < NVSHARE_STATE_COUNT;
		break;
	case NVSHARE_MSG_ACTIVITY:
		is_good = msg->body.activity.kind < NVSHARE_ACTIVITY_COUNT &&
			  msg->body.activity.n_violations <= msg->body.activity.n_tasks;
		break;
	case NVSHARE_MSG_COPY_AHEAD:
		is_good = msg->body.copy_ahead.bytes <= BYTES_MAX;
		break;
	case NVSHARE_MSG_CLEAN:
		is_good = clean_in_range(&msg->body.clean);
		break;
	case NVSHARE_MSG_STATUS_CLEAN:
		is_good = clean_in_range(&msg->body.status_clean.clean);
		break;
	case NVSHARE_MSG_GANG:
		is_good = msg->body.gang.size <= NVSHARE_GANG_SIZE_MAX;
		break;
	case NVSHARE_MSG_STATUS_GANG:
		is_good =
			msg->body.status_gang.flags <= (NVSHARE_GANG_APART | NVSHARE_GANG_LACKING);
		break;
	case NVSHARE_MSG_STATUS_WAIT:
		is_good = msg->body.status_wait.obstacle < NVSHARE_OBSTACLE_COUNT &&
			  msg->body.status_wait.kind < NVSHARE_PINNED_COUNT;
		break;
	case NVSHARE_MSG_TICKET_WORD:
		is_good = msg->body.ticket_word.word < NVSHARE_TICKET_COUNT &&
			  msg->body.ticket_word.flags <= NVSHARE_TICKET_USED;
		break;
	case NVSHARE_MSG_ORION:
		is_good = orion_in_range(&msg->body.orion);
		break;
	case NVSHARE_MSG_STATUS_ORION:
		is_good = orion_in_range(&msg->body.status_orion.orion);
		break;
	case NVSHARE_MSG_SET_SHARE:
		is_good = msg->body.set_share.use_ppm <= 1000000 &&
			  claim_in_range(&msg->body.set_share.claim);
		break;
	case NVSHARE_MSG_SHARE_SET:
		is_good = msg->body.share_set.outcome < NVSHARE_OUTCOME_COUNT &&
			  msg->body.share_set.is_held <= 1;
		break;
	case NVSHARE_MSG_SET:
		is_good = msg->body.set.key < NVSHARE_KEY_COUNT;
		break;
	case NVSHARE_MSG_CONFIG:
		is_good = msg->body.config.row < msg->body.config.n_rows &&
			  msg->body.config.is_fixed <= 1 &&
			  msg->body.config.value_len < NVSHARE_VALUE_ALL_MAX;
		break;
	case NVSHARE_MSG_SET_TEXT:
		is_good = msg->body.set_text.flags <= NVSHARE_SET_SAVE;
		break;
	case NVSHARE_MSG_TRACE:
		is_good = trace_in_range(&msg->body.trace);
		break;
	case NVSHARE_MSG_GET_EVENTS:
		is_good = msg->body.get_events.waits <= 1;
		break;
	case NVSHARE_MSG_EVENT:
		is_good = msg->body.event.level < NVSHARE_EVENT_LEVEL_COUNT &&
			  msg->body.event.type < NVSHARE_EVENT_COUNT;
		break;
	case NVSHARE_MSG_RESULT:
		is_good = msg->body.result.code < NVSHARE_RESULT_COUNT;
		break;
	default:
		is_good = jobs_in_range(msg);
		break;
	}
	return is_good ? 0 : MSG_E_RANGE;
}

int msg_decode(const void *bytes, size_t len, enum msg_to to, struct msg *ret_msg)
{
	struct nvshare_msg_header header;
	const struct type_info *info;
	struct msg msg;
	int r;

	if (len < sizeof(header))
		return MSG_E_SHORT;
	memcpy(&header, bytes, sizeof(header)); /* bytes may be unaligned */
	if (header.magic != NVSHARE_PROTOCOL_MAGIC)
		return MSG_E_MAGIC;
	if (header.version != NVSHARE_PROTOCOL_VERSION)
		return MSG_E_VERSION;
	info = type_info(header.type);
	if (!info || !goes_to(info->direction, to))
		return MSG_E_TYPE;
	if (len != info->size || header.size != info->size)
		return MSG_E_SIZE;

	memcpy(&msg, bytes, len);
	r = check_strings(&msg);
	if (!r)
		r = check_ranges(&msg);
	if (r)
		return r;
	memcpy(ret_msg, &msg, len);
	memset((uint8_t *)ret_msg + len, 0, sizeof(*ret_msg) - len);
	return 0;
}

size_t msg_size(uint16_t type)
{
	const struct type_info *info = type_info(type);

	return info ? info->size : 0;
}

size_t msg_encode(uint16_t type, uint32_t seq, const void *body, struct msg *ret_msg)
{
	size_t size = msg_size(type);

	assert(size); /* callers pass constants */
	memset(ret_msg, 0, size);
	ret_msg->header.magic = NVSHARE_PROTOCOL_MAGIC;
	ret_msg->header.version = NVSHARE_PROTOCOL_VERSION;
	ret_msg->header.type = type;
	ret_msg->header.size = (uint32_t)size;
	ret_msg->header.seq = seq;
	if (body)
		memcpy(&ret_msg->body, body, size - sizeof(ret_msg->header));
	return size;
}

const char *msg_name(uint16_t type)
{
	const struct type_info *info = type_info(type);

	return info ? info->name : "?";
}

const char *msg_error(int msg_e)
{
	static const char *const errors[] = {
		[MSG_E_SUCCESS_] = "no error",
		[MSG_E_SHORT] = "shorter than a header",
		[MSG_E_MAGIC] = "not of this protocol",
		[MSG_E_VERSION] = "of another version of the protocol",
		[MSG_E_TYPE] = "of an unknown type or for another direction",
		[MSG_E_SIZE] = "not of its type's size",
		[MSG_E_STRING] = "a string has no end",
		[MSG_E_RANGE] = "a value is out of its range",
	};

	if (msg_e < 0 || (size_t)msg_e >= sizeof(errors) / sizeof(errors[0]))
		return "?";
	return errors[msg_e];
}
