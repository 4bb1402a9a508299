/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/plugin.h"

#include "k8s/feature_file.h"
#include "k8s/host_files.h"
#include "k8s/methods.h"
#include "util/clock.h"
#include "util/container_of.h"
#include "util/fd.h"
#include "util/log.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <utlist.h>

/* Labels of a plugin that died expire after so many polls, and not before a minute. */
#define EXPIRY_POLLS   3
#define EXPIRY_SEC_MIN 60

_Static_assert((int)HOST_FILES_NO_NUMBER == (int)DEVICES_NO_NUMBER, "both mean: unknown");

/* ---- calls of the kubelet ---------------------------------------------------- */

static void plugin_answer(struct plugin *plugin, struct grpc_call *call, enum method method,
			  const uint8_t *message, size_t len)
{
	struct methods_answer answer = {.code = GRPC_OK};
	struct methods methods = {&plugin->devices, plugin->options, NULL};
	char library[PATH_MAX];

	if (method == METHOD_ALLOCATE &&
	    !host_files_library(plugin->options->host_root, plugin->options->library, library))
		methods.library = library;
	methods_call(&methods, method, message, len, &answer);
	if (answer.code) {
		log_warn("refused call=%s code=%d: %s", call->path, (int)answer.code, answer.text);
		grpc_fail(call, answer.code, "%s", answer.text);
	} else if (method == METHOD_WATCH) {
		grpc_stream(call); /* plugin_push() sends the list, once there is one */
		call->mark = 0;
		DL_APPEND2(plugin->watchers, call, list_prev, list_next);
		kubelet_note_watchers(&plugin->kubelet, ++plugin->n_watchers);
	} else {
		grpc_reply(call, answer.bytes, answer.len);
	}
	methods_clear(&answer);
}

/* Answers those whose status has come, up to number. */
static void plugin_answer_waiting(struct plugin *plugin, uint64_t number)
{
	struct grpc_call *call, *next;

	DL_FOREACH_SAFE2(plugin->waiting, call, next, list_next)
	{
		const uint8_t *message = NULL;
		const char *text;
		size_t len = 0;

		if (call->mark > number)
			continue;
		DL_DELETE2(plugin->waiting, call, list_prev, list_next);
		(void)grpc_frame_take(&call->in, &message, &len, &text); /* it was whole before */
		plugin_answer(plugin, call, METHOD_PREFER, message, len);
	}
	if (!plugin->waiting)
		loop_timer_clear(&plugin->patience);
}

static void plugin_on_impatience(struct loop_timer *timer)
{
	plugin_answer_waiting(container_of(timer, struct plugin, patience), UINT64_MAX);
}

static void plugin_on_request(struct grpc_call *call, const uint8_t *message, size_t len)
{
	struct plugin *plugin = call->grpc->service->owner;
	enum method method = methods_find(call->path);

	log_debug("call path=%s bytes=%zu", call->path, len);
	if (method == METHOD_PREFER && scheduler_link_is_up(&plugin->link)) {
		call->mark = scheduler_link_ask(&plugin->link);
		DL_APPEND2(plugin->waiting, call, list_prev, list_next);
		if (!scheduler_link_is_up(&plugin->link))
			plugin_answer_waiting(plugin, UINT64_MAX);
		else if (!plugin->patience.loop)
			loop_timer_set(&plugin->loop, &plugin->patience,
				       plugin->loop.now_ns + PLUGIN_PREFER_NS);
		return;
	}
	plugin_answer(plugin, call, method, message, len);
}

static void plugin_on_gone(struct grpc_call *call)
{
	struct plugin *plugin = call->grpc->service->owner;

	if (call->state == GRPC_STREAMING) {
		DL_DELETE2(plugin->watchers, call, list_prev, list_next);
		kubelet_note_watchers(&plugin->kubelet, --plugin->n_watchers);
	} else {
		DL_DELETE2(plugin->waiting, call, list_prev, list_next);
	}
}

/*
 * Sends the list to the watchers that lack it. One that reads slowly gets the newest list when the
 * last one has gone out, so it costs the memory of one list. Returns whether anything was sent.
 */
static bool plugin_push(struct plugin *plugin)
{
	const struct methods methods = {&plugin->devices, plugin->options, NULL};
	struct methods_answer list = {.code = GRPC_OK};
	struct grpc_call *call, *next;
	bool has_sent = false;

	DL_FOREACH_SAFE2(plugin->watchers, call, next, list_next)
	{
		if (call->mark == plugin->version || !grpc_is_drained(call))
			continue;
		if (!list.bytes)
			methods_call(&methods, METHOD_WATCH, NULL, 0, &list);
		if (list.code || grpc_push(call, list.bytes, list.len))
			continue; /* tried again in a later round */
		call->mark = plugin->version;
		has_sent = true;
	}
	methods_clear(&list);
	return has_sent;
}

/* ---- connections ------------------------------------------------------------- */

static void plugin_on_peer_end(struct transport *transport, int r)
{
	(void)transport;
	if (r)
		(void)log_errno(LOG_LEVEL_WARN, r, "a connection to the plugin has ended");
}

static void plugin_on_connection(struct kubelet *kubelet, int fd)
{
	struct plugin *plugin = container_of(kubelet, struct plugin, kubelet);

	for (unsigned int i = 0; i < PLUGIN_PEERS_MAX; i++) {
		if (!plugin->peers[i].loop) {
			(void)transport_open(&plugin->peers[i], &plugin->loop, fd, &plugin->service,
					     plugin_on_peer_end);
			return;
		}
	}
	log_warn("a connection is refused: there are %d", PLUGIN_PEERS_MAX);
	(void)fd_close(fd);
}

/* ---- the scheduler ----------------------------------------------------------- */

static void plugin_write_features(struct plugin *plugin)
{
	uint64_t seconds = EXPIRY_POLLS * plugin->options->poll_ns / CLOCK_NS_PER_SEC;
	char text[FEATURE_FILE_LEN];
	int r;

	if (!plugin->options->feature_file[0])
		return;
	if (seconds < EXPIRY_SEC_MIN)
		seconds = EXPIRY_SEC_MIN;
	feature_file_print(&plugin->devices, time(NULL) + (time_t)seconds, text);
	r = feature_file_write(plugin->options->feature_file, text);
	if (r)
		(void)log_errno(LOG_LEVEL_WARN, r, "cannot write %s",
				plugin->options->feature_file);
}

static void plugin_new_list(struct plugin *plugin)
{
	const struct devices *devices = &plugin->devices;

	plugin->version++;
	for (uint32_t i = 0; i < devices->n; i++) {
		const char *fault = devices_fault(devices, i);

		log_info("devices gpu=%u uuid=%s replicas=%u %s%s", i, devices->gpus[i].load.uuid,
			 devices->n_replicas, fault ? "unhealthy: " : "healthy",
			 fault ? fault : "");
	}
	if (!devices->n)
		log_warn("the scheduler knows no GPU: it needs NVML, or NVSHARE_GPUS");
}

static void plugin_on_status(struct scheduler_link *link, const struct gpu_loads *loads,
			     uint64_t number)
{
	struct plugin *plugin = container_of(link, struct plugin, link);
	struct devices *devices = &plugin->devices;
	uint32_t n_before = devices->n;
	bool has_changed = devices_update(devices, loads);

	loop_timer_clear(&plugin->grace);
	for (uint32_t i = n_before; i < devices->n; i++) {
		struct host_gpu gpu =
			host_files_gpu(plugin->options->host_root, devices->gpus[i].load.uuid);

		devices->gpus[i].numa = gpu.numa;
		devices->gpus[i].minor = gpu.minor;
	}
	if (has_changed)
		plugin_new_list(plugin);
	if (loads->n_left_out)
		log_warn("%u GPUs beyond %d are left out", loads->n_left_out, GPU_LOAD_MAX);
	plugin_write_features(plugin);
	plugin_answer_waiting(plugin, number);
}

static void plugin_on_lost(struct scheduler_link *link)
{
	struct plugin *plugin = container_of(link, struct plugin, link);

	plugin->devices.is_live = false;
	if (plugin->devices.is_known && !plugin->devices.is_lost && !plugin->grace.loop)
		loop_timer_set(&plugin->loop, &plugin->grace,
			       plugin->loop.now_ns + plugin->options->grace_ns);
	plugin_answer_waiting(plugin, UINT64_MAX);
}

static void plugin_on_grace_end(struct loop_timer *timer)
{
	struct plugin *plugin = container_of(timer, struct plugin, grace);

	plugin->devices.is_lost = true;
	plugin_new_list(plugin);
	if (plugin->options->feature_file[0])
		feature_file_remove(plugin->options->feature_file);
}

static const struct scheduler_link_owner plugin_link_owner = {
	.on_status = plugin_on_status,
	.on_lost = plugin_on_lost,
};

/* ---- life -------------------------------------------------------------------- */

static void plugin_on_signal(void *context, struct event_source *source, uint32_t events)
{
	struct plugin *plugin = container_of(source, struct plugin, signals);
	struct signalfd_siginfo info;

	(void)context;
	(void)events;
	if (read(plugin->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	log_info("end signal=%u", info.ssi_signo);
	plugin->is_ending = true;
}

/* 0 or -errno. */
static int plugin_open_signals(struct plugin *plugin)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)signal(SIGPIPE, SIG_IGN);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	plugin->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (plugin->signal_fd < 0)
		return -errno;
	return event_source_add(&plugin->loop.poller, &plugin->signals, plugin->signal_fd, EPOLLIN,
				plugin_on_signal);
}

int plugin_init(struct plugin *plugin, const struct plugin_options *options)
{
	int r;

	*plugin = (struct plugin){
		.options = options,
		.signal_fd = -1,
		.loop.poller.fd = -1,
		.devices.n_replicas = options->n_replicas,
		.grace.on_due = plugin_on_grace_end,
		.patience.on_due = plugin_on_impatience,
		.service = {plugin_on_request, plugin_on_gone, plugin},
		.link.fd = -1,
	};
	r = loop_open(&plugin->loop);
	if (!r)
		r = plugin_open_signals(plugin);
	if (r)
		return log_errno(LOG_LEVEL_ERROR, r, "cannot start");
	scheduler_link_open(&plugin->link, &plugin->loop, options->sock_dir, options->poll_ns,
			    &plugin_link_owner);
	r = kubelet_open(&plugin->kubelet, &plugin->loop, options->kubelet_dir, options->resource,
			 plugin_on_connection);
	if (r == KUBELET_E_TAKEN) {
		log_error("another plugin of nvshare has the folder %s", options->kubelet_dir);
		return -EBUSY;
	}
	if (r == KUBELET_E_LONG) {
		log_error("the path of the folder is too long for a socket: %s",
			  options->kubelet_dir);
		return -ENAMETOOLONG;
	}
	return 0;
}

static void plugin_flush(struct plugin *plugin)
{
	kubelet_flush(&plugin->kubelet);
	do {
		for (unsigned int i = 0; i < PLUGIN_PEERS_MAX; i++)
			transport_flush(&plugin->peers[i]);
	} while (plugin_push(plugin));
}

int plugin_run(struct plugin *plugin)
{
	while (!plugin->is_ending) {
		int r = loop_round(&plugin->loop);

		if (r)
			return log_errno(LOG_LEVEL_ERROR, r, "cannot wait for events");
		plugin_flush(plugin);
	}
	return 0;
}

void plugin_deinit(struct plugin *plugin)
{
	for (unsigned int i = 0; i < PLUGIN_PEERS_MAX; i++) {
		if (!plugin->peers[i].loop)
			continue;
		grpc_goodbye(&plugin->peers[i].grpc);
		transport_flush(&plugin->peers[i]);
		transport_close(&plugin->peers[i]);
	}
	kubelet_close(&plugin->kubelet);
	scheduler_link_close(&plugin->link);
	if (plugin->options->feature_file[0])
		feature_file_remove(plugin->options->feature_file);
	event_source_remove(&plugin->signals);
	plugin->signal_fd = fd_close(plugin->signal_fd);
	if (plugin->loop.poller.fd >= 0)
		loop_close(&plugin->loop);
}
