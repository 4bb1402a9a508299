/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/hook_options.h"

#include "hook/hook_log.h"
#include "util/clock.h"
#include "util/parse.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Checked here, evaluated where the size of the card is known. */
static void read_limit(char *(*get)(const char *name), struct hook_options *ret)
{
	const char *value = value_of(get, "NVSHARE_GPU_MEMORY_LIMIT");
	uint64_t bytes = 0;

	if (!value)
		return;
	if (strlen(value) >= sizeof(ret->memory_limit) ||
	    parse_size_or_percent(value, UINT64_MAX, &bytes) || !bytes)
		complain("NVSHARE_GPU_MEMORY_LIMIT", value, "a size like 20GiB or 50%");
	else
		(void)strcpy(ret->memory_limit, value);
}

static void read_names(char *(*get)(const char *name), struct hook_options *ret)
{
	const char *name = value_of(get, "NVSHARE_NAME");
	const char *pod = value_of(get, "NVSHARE_POD");
	const char *pod_space = value_of(get, "POD_NAMESPACE");
	const char *pod_name = value_of(get, "POD_NAME");

	if (name)
		(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
	if (pod)
		(void)snprintf(ret->pod, sizeof(ret->pod), "%s", pod);
	else if (pod_name)
		(void)snprintf(ret->pod, sizeof(ret->pod), "%s/%s",
			       pod_space ? pod_space : "default", pod_name);
}

void hook_options_parse(char *(*get)(const char *name), struct hook_options *ret)
{
	static const struct range orphan = {0, 86400, CLOCK_NS_PER_SEC, "0 to 86400 seconds"};
	static const struct range grace = {0, 600000, CLOCK_NS_PER_MS, "0 to 600000 milliseconds"};
	static const struct range drain = {1, 600000, CLOCK_NS_PER_MS, "1 to 600000 milliseconds"};
	static const struct range idle = {1, 3600000, CLOCK_NS_PER_MS, "1 to 3600000 milliseconds"};
	int saved_errno = errno;

	*ret = (struct hook_options){
		.backend = HOOK_OPTIONS_BACKEND_AUTO,
		.freeze = true,
		.orphan_ns = 30 * CLOCK_NS_PER_SEC,
		.drain_ns = 10 * CLOCK_NS_PER_MS,
		.drain_max_ns = 2000 * CLOCK_NS_PER_MS,
		.idle_ns = 1000 * CLOCK_NS_PER_MS,
	};
	read_backend(get, &ret->backend);
	read_bool(get, "NVSHARE_REQUIRE_SCHEDULER", &ret->require_scheduler);
	read_bool(get, "NVSHARE_IPC", &ret->ipc);
	read_bool(get, "NVSHARE_ENABLE_SINGLE_OVERSUB", &ret->single_oversub);
	read_bool(get, "NVSHARE_FREEZE", &ret->freeze);
	read_time(get, "NVSHARE_ORPHAN_TIMEOUT_SEC", &orphan, &ret->orphan_ns);
	read_time(get, "NVSHARE_DRAIN_MS", &grace, &ret->drain_ns);
	read_time(get, "NVSHARE_DRAIN_MAX_MS", &drain, &ret->drain_max_ns);
	read_time(get, "NVSHARE_IDLE_MS", &idle, &ret->idle_ns);
	read_limit(get, ret);
	read_names(get, ret);
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
