/* SPDX-License-Identifier: Apache-2.0 */

/* The functions of orion.h, but for those of the thread's client. */

#include "hook/orion/orion_private.h"

#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/base/lifecycle.h"
#include "hook/gate/bell.h"
#include "util/clock.h"

#include <errno.h>
#include <string.h>

#define API_FLUSH_NS (10 * CLOCK_NS_PER_SEC) /* submitted work may take so long to be measured */
#define API_LOOK_NS  (CLOCK_NS_PER_MS / 10)
#define API_PPM      1000000.0f

/* ---- settings ------------------------------------------------------------------- */

/* Under the lock. The first use reads the variables. */
static void api_need_config(void)
{
	const struct hook_options *options = hook_options();

	if (orion.is_config_known)
		return;
	orion.is_config_known = true;
	orion.config = (struct orion_config){
		.sm_threshold_ratio = (float)options->orion_sm_ppm / API_PPM,
		.dur_threshold_ratio = (float)options->orion_dur_ppm / API_PPM,
		.hp_request_latency_ms = (float)options->orion_latency_us / 1000.0f,
		.poll_interval_us = (int32_t)(options->orion_poll_ns / 1000),
		.interference_aware = options->orion_interference_aware,
		.device_id = (int32_t)options->orion_device,
	};
}

static bool api_is_latency(float ms)
{
	return ms >= 0.001f && ms <= ORION_LATENCY_MS_MAX;
}

static bool api_is_config(const struct orion_config *c)
{
	return c->sm_threshold_ratio > 0 && c->sm_threshold_ratio <= 1 &&
	       c->dur_threshold_ratio > 0 && c->dur_threshold_ratio <= 1 &&
	       api_is_latency(c->hp_request_latency_ms) && c->poll_interval_us >= 1 &&
	       c->poll_interval_us <= 1000000 && c->device_id >= 0 &&
	       (c->interference_aware == 0 || c->interference_aware == 1);
}

int orion_get_config(struct orion_config *ret, size_t size)
{
	int saved_errno = errno;

	if (!ret || size == 0)
		return -EINVAL;
	memset(ret, 0, size);
	hook_lock(&orion.lock);
	api_need_config();
	memcpy(ret, &orion.config, size < sizeof(orion.config) ? size : sizeof(orion.config));
	hook_unlock(&orion.lock);
	errno = saved_errno;
	return 0;
}

int orion_set_config(const struct orion_config *config, size_t size)
{
	int saved_errno = errno, r = -EALREADY;
	struct orion_config c;

	if (!config || size == 0)
		return -EINVAL;
	hook_lock(&orion.lock);
	api_need_config();
	if (orion.state == ORION_OFF) {
		c = orion.config;
		memcpy(&c, config, size < sizeof(c) ? size : sizeof(c));
		c.num_sms = c.device_id == orion.config.device_id ? orion.config.num_sms : 0;
		r = api_is_config(&c) ? 0 : -EINVAL;
		if (r == 0)
			orion.config = c;
	}
	hook_unlock(&orion.lock);
	errno = saved_errno;
	return r;
}

int orion_set_hp_latency(float latency_ms)
{
	int saved_errno = errno;
	struct orion_policy_event event = {
		.type = ORION_POLICY_EVENT_LATENCY,
		.hp_latency_ns = (uint64_t)((double)latency_ms * 1e6),
	};

	if (!api_is_latency(latency_ms))
		return -EINVAL;
	hook_lock(&orion.lock);
	api_need_config();
	orion.config.hp_request_latency_ms = latency_ms;
	event.now_ns = clock_now_ns();
	if (orion.is_policy_ready)
		(void)orion_step(&event);
	hook_unlock(&orion.lock);
	errno = saved_errno;
	return 0;
}

/* ---- start and end ---------------------------------------------------------------- */

/* Under the lock. */
static void api_set_taking(void)
{
	__atomic_store_n(&orion_is_taking,
			 orion.state != ORION_OFF && !orion.is_disabled && !orion.is_ending,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&orion_is_started, orion.state == ORION_SCHEDULES, __ATOMIC_RELAXED);
}

/* Takes the lock when no end is under way, so that nothing of it meets the next start. */
static void api_lock(void)
{
	hook_lock(&orion.lock);
	while (orion.is_ending)
		hook_wait(&orion.changed, &orion.lock);
}

/* Under the lock. */
static int api_take(int n_clients, enum orion_state state)
{
	if (orion.state >= state)
		return -EALREADY;
	if (orion.state != ORION_OFF && (int)orion.n_clients != n_clients)
		return -EINVAL;
	if (!orion_profiles_ready())
		return -ENOMEM;
	api_need_config();
	__atomic_store_n(&orion_has_books, true, __ATOMIC_RELAXED);
	orion.n_clients = (uint32_t)n_clients;
	orion.state = state;
	orion.is_inited = orion.is_inited || state == ORION_TAKES;
	orion.is_policy_ready = false;
	orion.was_started = orion.was_started || state == ORION_SCHEDULES;
	orion.generation++;
	orion.go = 0;
	orion.passed = 0;
	memset(&orion.policy, 0, sizeof(orion.policy));
	api_set_taking();
	return 0;
}

static const char *api_reason(int r)
{
	switch (r) {
	case -EINVAL:
		return "num_clients is out of its range, or not that of orion_init()";
	case -EALREADY:
		return "it was called before";
	case -ENOSYS:
		return "the library was loaded too late to see calls of CUDA; start the program "
		       "with LD_PRELOAD=libnvshare.so";
	default:
		return "no memory";
	}
}

static int api_start(const char *function, int n_clients, enum orion_state state)
{
	int saved_errno = errno, r = -EINVAL;

	if (n_clients >= 1 && n_clients <= ORION_CLIENTS_MAX)
		r = orion_sees_calls() ? 0 : -ENOSYS;
	if (r == 0) {
		lifecycle_start(); /* for a fork before the first use of CUDA */
		api_lock();
		r = api_take(n_clients, state);
		hook_unlock(&orion.lock);
		bell_ring(); /* the agent reports it */
	}
	if (r != 0)
		hook_log_warn("%s(%d) has failed: %s", function, n_clients, api_reason(r));
	errno = saved_errno;
	return r;
}

int orion_init(int num_clients)
{
	return api_start("orion_init", num_clients, ORION_TAKES);
}

int orion_start_scheduler(int num_clients)
{
	return api_start("orion_start_scheduler", num_clients, ORION_SCHEDULES);
}

/* Under the lock; gives it up. Goes back to state, in which nothing is scheduled. */
static void api_end(enum orion_state state)
{
	orion.state = state;
	orion.is_inited = state == ORION_TAKES;
	orion.is_profiling = orion.is_profiling && state == ORION_TAKES;
	orion.generation++;
	orion.is_ending = true;
	api_set_taking();
	orion_release();
	while (orion.n_inside > 0 || orion.is_polling)
		hook_wait(&orion.changed, &orion.lock);
	orion_drop_flights();
	orion.is_ending = false;
	api_set_taking();
	(void)pthread_cond_broadcast(&orion.changed);
}

int orion_stop_scheduler(void)
{
	int saved_errno = errno, r = -ENOTCONN;

	api_lock();
	if (orion.state == ORION_SCHEDULES) {
		api_end(orion.is_inited ? ORION_TAKES : ORION_OFF);
		r = 0;
	}
	hook_unlock(&orion.lock);
	bell_ring();
	errno = saved_errno;
	return r;
}

int orion_shutdown(void)
{
	int saved_errno = errno, r = -ENOTCONN;

	api_lock();
	if (orion.state != ORION_OFF) {
		api_end(ORION_OFF);
		r = 0;
	}
	hook_unlock(&orion.lock);
	bell_ring();
	errno = saved_errno;
	return r;
}

int orion_set_enabled(int enabled)
{
	int saved_errno = errno;

	hook_lock(&orion.lock);
	orion.is_disabled = !enabled;
	api_set_taking();
	if (orion.is_disabled)
		orion_release();
	hook_unlock(&orion.lock);
	errno = saved_errno;
	return 0;
}

int orion_is_enabled(void)
{
	int is_enabled;

	hook_lock(&orion.lock);
	is_enabled = !orion.is_disabled;
	hook_unlock(&orion.lock);
	return is_enabled;
}

/* ---- what was done ------------------------------------------------------------------ */

int orion_get_stats(struct orion_stats *ret, size_t size)
{
	const struct orion_policy_counters *c = &orion.policy.counters;
	struct orion_stats stats = {0};
	int saved_errno = errno, r = -ENOTCONN;

	if (!ret || size == 0)
		return -EINVAL;
	hook_lock(&orion.lock);
	if (orion.was_started) {
		stats = (struct orion_stats){
			.hp_ops_scheduled = c->hp_ops_scheduled,
			.be_ops_scheduled = c->be_ops_scheduled,
			.be_ops_rejected = c->be_ops_rejected,
			.total_wait_time_us = c->total_wait_ns / 1000,
		};
		memset(ret, 0, size);
		memcpy(ret, &stats, size < sizeof(stats) ? size : sizeof(stats));
		r = 0;
	}
	hook_unlock(&orion.lock);
	errno = saved_errno;
	return r;
}

/* ---- profiles --------------------------------------------------------------------------- */

int orion_load_profile(const char *filepath)
{
	int saved_errno = errno, r = -EINVAL;

	if (filepath) {
		hook_lock(&orion.lock);
		api_need_config();
		r = orion_profiles_ready() ? 0 : -ENOMEM;
		hook_unlock(&orion.lock);
	}
	if (r == 0)
		r = orion_profile_load(filepath);
	errno = saved_errno;
	return r;
}

int orion_start_profiling(const char *model_name)
{
	int saved_errno = errno, r = 0;

	if (!model_name || !*model_name)
		return -EINVAL;
	hook_lock(&orion.lock);
	if (orion.state == ORION_OFF)
		r = -ENOTCONN;
	else if (orion.is_profiling)
		r = -EALREADY;
	else
		orion.is_profiling = true;
	if (r == 0)
		kernel_profile_name_set(&orion.model, model_name, strlen(model_name));
	hook_unlock(&orion.lock);
	errno = saved_errno;
	return r;
}

/* Under the lock; gives it up. */
static void api_flush(void)
{
	uint64_t end_ns = clock_now_ns() + API_FLUSH_NS;

	orion_poll();
	while ((orion.n_flights > 0 || orion.is_polling) && clock_now_ns() < end_ns) {
		(void)hook_wait_until(&orion.changed, &orion.lock, clock_now_ns() + API_LOOK_NS);
		orion_poll();
	}
}

int orion_end_profiling(const char *output_path)
{
	int saved_errno = errno, r = 0;

	if (!output_path || !*output_path)
		return -EINVAL;
	hook_lock(&orion.lock);
	if (!orion.is_profiling)
		r = -EALREADY;
	else
		api_flush();
	orion.is_profiling = false;
	hook_unlock(&orion.lock);
	if (r == 0)
		r = orion_profile_save(output_path);
	errno = saved_errno;
	return r;
}
