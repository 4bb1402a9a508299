/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/hook_options.h"

#include "hook/base/hook_log.h"
#include "ipc/names.h"
#include "util/clock.h"
#include "util/parse.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

static const char *const backend_names[] = {
	[HOOK_OPTIONS_BACKEND_AUTO] = "auto",
	[HOOK_OPTIONS_BACKEND_VMM] = "vmm",
	[HOOK_OPTIONS_BACKEND_MANAGED] = "managed",
	[HOOK_OPTIONS_BACKEND_NONE] = "none",
};

static struct hook_options options;
static pthread_once_t options_once = PTHREAD_ONCE_INIT;

/* An empty value is no value: that is how a shell or a manifest takes one back. */
static const char *value_of(char *(*get)(const char *name), const char *name)
{
	const char *value = get(name);

	return value && *value ? value : NULL;
}

static void complain(const char *name, const char *value, const char *allowed)
{
	hook_log_warn("%s '%.64s' is not %s; the default is used", name, value, allowed);
}

static void read_bool(char *(*get)(const char *name), const char *name, bool *ret)
{
	const char *value = value_of(get, name);

	if (value && parse_bool(value, ret))
		complain(name, value, "1 or 0");
}

struct range {
	uint64_t min;
	uint64_t max;
	uint64_t unit_ns;
	const char *allowed;
};

static void read_time(char *(*get)(const char *name), const char *name, const struct range *range,
		      uint64_t *ret_ns)
{
	const char *value = value_of(get, name);
	uint64_t n;

	if (!value)
		return;
	if (parse_u64(value, range->min, range->max, &n))
		complain(name, value, range->allowed);
	else
		*ret_ns = n * range->unit_ns;
}

static void read_backend(char *(*get)(const char *name), enum hook_options_backend *ret)
{
	const char *value = value_of(get, "NVSHARE_MEMORY_BACKEND");
	unsigned int index;

	if (!value)
		return;
	if (parse_enum(value, backend_names, sizeof(backend_names) / sizeof(backend_names[0]),
		       &index))
		complain("NVSHARE_MEMORY_BACKEND", value, "auto, vmm, managed or none");
	else
		*ret = (enum hook_options_backend)index;
}

static void read_rdma(char *(*get)(const char *name), bool *ret_ignores)
{
	static const char *const names[] = {"stay", "ignore"};
	const char *value = value_of(get, "NVSHARE_RDMA");
	unsigned int index;

	if (!value)
		return;
	if (parse_enum(value, names, sizeof(names) / sizeof(names[0]), &index))
		complain("NVSHARE_RDMA", value, "stay or ignore");
	else
		*ret_ignores = index == 1;
}

static void read_u32(char *(*get)(const char *name), const char *name, const struct range *range,
		     uint32_t *ret)
{
	const char *value = value_of(get, name);
	uint64_t n;

	if (!value)
		return;
	if (parse_u64(value, range->min, range->max, &n))
		complain(name, value, range->allowed);
	else
		*ret = (uint32_t)n;
}

/* Milliseconds with a fraction: services answer in less than one. */
static void read_slo(char *(*get)(const char *name), uint32_t *ret_us)
{
	const char *value = value_of(get, "NVSHARE_SLO_MS");
	uint64_t n;

	if (!value)
		return;
	/* Taken for seconds, so that a thousandth of a millisecond comes to 1000 x 1000 x 1 ns. */
	if (parse_seconds(value, 1000000, NVSHARE_SLO_US_MAX * 1000000ull, &n))
		complain("NVSHARE_SLO_MS", value, "0.001 to 3600000 milliseconds");
	else
		*ret_us = (uint32_t)(n / 1000000);
}

const char *hook_options_priority(uint32_t priority)
{
	return priority < NVSHARE_PRIORITY_COUNT ? names_priority[priority] : "?";
}

static void read_claim(char *(*get)(const char *name), struct nvshare_claim *ret)
{
	static const struct range weight = {NVSHARE_WEIGHT_MIN, NVSHARE_WEIGHT_MAX, 0,
					    "1 to 10000"};
	static const struct range limit = {1, 100, 0, "1 to 100 percent"};
	const char *value = value_of(get, "NVSHARE_PRIORITY");
	bool is_critical = false;
	unsigned int index;

	if (value && parse_enum(value, names_priority, NVSHARE_PRIORITY_COUNT, &index))
		complain("NVSHARE_PRIORITY", value, "critical, high, normal or low");
	else if (value)
		ret->priority = index;
	read_bool(get, "NVSHARE_LATENCY_CRITICAL", &is_critical);
	if (is_critical)
		ret->priority = NVSHARE_PRIORITY_CRITICAL;
	read_u32(get, "NVSHARE_WEIGHT", &weight, &ret->weight);
	read_slo(get, &ret->slo_us);
	read_u32(get, "NVSHARE_COMPUTE_LIMIT", &limit, &ret->compute_limit);
}

/* Checked here, evaluated where the size of the whole is known. */
static void read_limit(char *(*get)(const char *name), const char *name, uint64_t min, char *ret,
		       size_t size)
{
	const char *value = value_of(get, name);
	uint64_t bytes = 0;

	if (!value)
		return;
	if (strlen(value) >= size || parse_size_or_percent(value, UINT64_MAX, &bytes) ||
	    bytes < min)
		complain(name, value, "a size like 20GiB or 50%");
	else
		(void)strcpy(ret, value);
}

/* Absolute from here on: the program may go elsewhere before its scheduler is back. */
static void read_sock_dir(char *(*get)(const char *name), char *ret, size_t size)
{
	const size_t max =
		sizeof(((struct sockaddr_un *)0)->sun_path) - sizeof("/" NVSHARE_SOCK_NAME);
	const char *value = value_of(get, "NVSHARE_SOCK_DIR");
	char here[PATH_MAX] = "", allowed[64];
	size_t len = 0;

	(void)snprintf(ret, size, "%s", NVSHARE_SOCK_DIR_DEFAULT);
	if (value && *value != '/' && getcwd(here, sizeof(here)))
		len = strlen(here) + 1;
	if (!value)
		return;
	if (len + strlen(value) > max) {
		(void)snprintf(allowed, sizeof(allowed), "a folder of at most %zu bytes", max);
		complain("NVSHARE_SOCK_DIR", value, allowed);
	} else {
		(void)snprintf(ret, size, "%s%s%s", here, len ? "/" : "", value);
	}
}

static void read_names(char *(*get)(const char *name), struct hook_options *ret)
{
	const char *name = value_of(get, "NVSHARE_NAME");
	const char *pod = value_of(get, "NVSHARE_POD");
	const char *pod_space = value_of(get, "POD_NAMESPACE");
	const char *pod_name = value_of(get, "POD_NAME");

	read_sock_dir(get, ret->sock_dir, sizeof(ret->sock_dir));
	if (name)
		(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
	if (pod)
		(void)snprintf(ret->pod, sizeof(ret->pod), "%s", pod);
	else if (pod_name)
		(void)snprintf(ret->pod, sizeof(ret->pod), "%s/%s",
			       pod_space ? pod_space : "default", pod_name);
}

static void read_others(char *(*get)(const char *name), struct hook_options *ret)
{
	const char *mps = value_of(get, "CUDA_MPS_PIPE_DIRECTORY");

	ret->is_injected =
		value_of(get, "CUDA_INJECTION64_PATH") || value_of(get, "NVTX_INJECTION64_PATH");
	ret->is_mps_part = value_of(get, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") != NULL;
	if (mps)
		(void)snprintf(ret->mps_dir, sizeof(ret->mps_dir), "%s", mps);
}

void hook_options_parse(char *(*get)(const char *name), struct hook_options *ret)
{
	static const struct range orphan = {0, 86400, CLOCK_NS_PER_SEC, "0 to 86400 seconds"};
	static const struct range grace = {0, 600000, CLOCK_NS_PER_MS, "0 to 600000 milliseconds"};
	static const struct range drain = {1, 600000, CLOCK_NS_PER_MS, "1 to 600000 milliseconds"};
	static const struct range burst = {100, 1000000, 1000, "100 to 1000000 microseconds"};
	static const struct range idle = {1, 3600000, CLOCK_NS_PER_MS, "1 to 3600000 milliseconds"};
	int saved_errno = errno;

	*ret = (struct hook_options){
		.backend = HOOK_OPTIONS_BACKEND_AUTO,
		.freeze = true,
		.transfer = true,
		.orphan_ns = 30 * CLOCK_NS_PER_SEC,
		.drain_ns = 10 * CLOCK_NS_PER_MS,
		.drain_max_ns = 2000 * CLOCK_NS_PER_MS,
		.copy_max_ns = 10000 * CLOCK_NS_PER_MS,
		.idle_ns = 1000 * CLOCK_NS_PER_MS,
		.burst_idle_ns = CLOCK_NS_PER_MS / 2,
		.claim = {.priority = NVSHARE_PRIORITY_NORMAL, .weight = NVSHARE_WEIGHT_DEFAULT},
	};
	read_backend(get, &ret->backend);
	read_bool(get, "NVSHARE_REQUIRE_SCHEDULER", &ret->require_scheduler);
	read_bool(get, "NVSHARE_IPC", &ret->ipc);
	read_bool(get, "NVSHARE_ENABLE_SINGLE_OVERSUB", &ret->single_oversub);
	read_bool(get, "NVSHARE_FREEZE", &ret->freeze);
	read_bool(get, "NVSHARE_TRANSFER", &ret->transfer);
	read_rdma(get, &ret->ignores_rdma);
	read_time(get, "NVSHARE_ORPHAN_TIMEOUT_SEC", &orphan, &ret->orphan_ns);
	read_time(get, "NVSHARE_DRAIN_MS", &grace, &ret->drain_ns);
	read_time(get, "NVSHARE_DRAIN_MAX_MS", &drain, &ret->drain_max_ns);
	read_time(get, "NVSHARE_COPY_MAX_MS", &drain, &ret->copy_max_ns);
	read_time(get, "NVSHARE_IDLE_MS", &idle, &ret->idle_ns);
	read_time(get, "NVSHARE_BURST_IDLE_US", &burst, &ret->burst_idle_ns);
	read_claim(get, &ret->claim);
	read_limit(get, "NVSHARE_GPU_MEMORY_LIMIT", 1, ret->memory_limit,
		   sizeof(ret->memory_limit));
	read_limit(get, "NVSHARE_HOST_MEMORY_LIMIT", 0, ret->host_memory_limit,
		   sizeof(ret->host_memory_limit));
	read_names(get, ret);
	read_others(get, ret);
	errno = saved_errno;
}

static void read_once(void)
{
	hook_options_parse(getenv, &options);
}

const struct hook_options *hook_options(void)
{
	(void)pthread_once(&options_once, read_once);
	return &options;
}
