/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/hook_options.h"

#include "hook/base/gang_name.h"
#include "hook/base/hook_log.h"
#include "ipc/names.h"
#include "util/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct hook_options options;
static pthread_once_t options_once = PTHREAD_ONCE_INIT;

/* An empty value counts as not set: a shell or a manifest takes a variable back this way. */
static const char *value_of(char *(*get)(const char *name), const char *name)
{
	const char *value = get(name);

	return value && *value ? value : NULL;
}

const char *hook_options_priority(uint32_t priority)
{
	return priority < NVSHARE_PRIORITY_COUNT ? names_priority[priority] : "?";
}

void hook_options_default(struct hook_options *ret)
{
	*ret = (struct hook_options){
		.backend = HOOK_OPTIONS_BACKEND_AUTO,
		.freeze = true,
		.transfer = true,
		.clean = true,
		.rdma = HOOK_OPTIONS_RDMA_STAY,
		.orphan_ns = 30 * CLOCK_NS_PER_SEC,
		.drain_ns = 10 * CLOCK_NS_PER_MS,
		.drain_max_ns = 2000 * CLOCK_NS_PER_MS,
		.copy_max_ns = 10000 * CLOCK_NS_PER_MS,
		.idle_ns = 1000 * CLOCK_NS_PER_MS,
		.burst_idle_ns = CLOCK_NS_PER_MS / 2,
		.orion_sm_ppm = 500000,
		.orion_dur_ppm = 25000,
		.orion_latency_us = 10000,
		.orion_poll_ns = 10000,
		.orion_interference_aware = true,
		.claim = {.priority = NVSHARE_PRIORITY_NORMAL, .weight = NVSHARE_WEIGHT_DEFAULT},
		.gang_auto = true,
		.sock_dir = NVSHARE_SOCK_DIR_DEFAULT,
	};
}

static void read_setting(char *(*get)(const char *name), const struct setting *setting,
			 struct hook_options *ret)
{
	const char *value = value_of(get, setting->variable);
	char allowed[SETTING_TEXT_LEN];

	if (!value || !setting_parse(setting, value, ret))
		return;
	setting_allowed(setting, allowed);
	hook_log_warn("%s is '%.64s'; allowed is %s; the default is used", setting->variable, value,
		      allowed);
}

/* Variables of others, which describe the program. */
static void read_others(char *(*get)(const char *name), struct hook_options *ret)
{
	const char *mps = value_of(get, "CUDA_MPS_PIPE_DIRECTORY");
	const char *pod_space = value_of(get, "POD_NAMESPACE");
	const char *pod_name = value_of(get, "POD_NAME");

	ret->is_injected =
		value_of(get, "CUDA_INJECTION64_PATH") || value_of(get, "NVTX_INJECTION64_PATH");
	ret->is_mps_part = value_of(get, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") != NULL;
	if (mps)
		(void)snprintf(ret->mps_dir, sizeof(ret->mps_dir), "%s", mps);
	if (!*ret->pod && pod_name)
		(void)snprintf(ret->pod, sizeof(ret->pod), "%s/%s",
			       pod_space ? pod_space : "default", pod_name);
}

void hook_options_parse(char *(*get)(const char *name), struct hook_options *ret)
{
	int saved_errno = errno;

	hook_options_default(ret);
	for (size_t i = 0; i < hook_options_table_len; i++)
		read_setting(get, &hook_options_table[i], ret);
	if (ret->latency_critical)
		ret->claim.priority = NVSHARE_PRIORITY_CRITICAL;
	read_others(get, ret);
	if (!*ret->gang && ret->gang_auto)
		ret->is_gang_found = gang_name_find(get, ret->gang);
	errno = saved_errno;
}

static void read_once(void)
{
	hook_options_parse(secure_getenv, &options);
}

const struct hook_options *hook_options(void)
{
	(void)pthread_once(&options_once, read_once);
	return &options;
}
