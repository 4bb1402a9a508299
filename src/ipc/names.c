/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/names.h"

#include <stdio.h>
#include <string.h>

const char *const names_mode[NVSHARE_MODE_COUNT] = {
	[NVSHARE_MODE_AUTO] = "auto",
	[NVSHARE_MODE_SERIAL] = "serial",
	[NVSHARE_MODE_CONCURRENT] = "concurrent",
};

const char *const names_policy[NVSHARE_POLICY_COUNT] = {
	[NVSHARE_POLICY_PRIORITY] = "priority",
	[NVSHARE_POLICY_FAIR] = "fair",
	[NVSHARE_POLICY_CREDIT] = "credit",
	[NVSHARE_POLICY_DEADLINE] = "deadline",
};

const char *const names_priority[NVSHARE_PRIORITY_COUNT] = {
	[NVSHARE_PRIORITY_LOW] = "low",
	[NVSHARE_PRIORITY_NORMAL] = "normal",
	[NVSHARE_PRIORITY_HIGH] = "high",
	[NVSHARE_PRIORITY_CRITICAL] = "critical",
};

const char *const names_switch_mode[NVSHARE_SWITCH_COUNT] = {
	[NVSHARE_SWITCH_AUTO] = "auto",
	[NVSHARE_SWITCH_FIXED] = "fixed",
};

const char *const names_key[NVSHARE_KEY_COUNT] = {
	[NVSHARE_KEY_MODE] = "mode",
	[NVSHARE_KEY_TQ] = "tq",
	[NVSHARE_KEY_SWITCH_TIME] = "switch-time",
	[NVSHARE_KEY_RESERVE] = "reserve",
	[NVSHARE_KEY_MAX_RUNTIME] = "max-runtime",
	[NVSHARE_KEY_POLICY] = "policy",
	[NVSHARE_KEY_PRIORITY] = "priority",
	[NVSHARE_KEY_WEIGHT] = "weight",
	[NVSHARE_KEY_SLO] = "slo",
	[NVSHARE_KEY_COMPUTE_LIMIT] = "compute-limit",
	[NVSHARE_KEY_PAUSE] = "pause",
};

const char *const names_trace[NVSHARE_TRACE_COUNT] = {
	[NVSHARE_TRACE_JOIN] = "join",       [NVSHARE_TRACE_NAME] = "name",
	[NVSHARE_TRACE_LEAVE] = "leave",     [NVSHARE_TRACE_ASK] = "ask",
	[NVSHARE_TRACE_WAIT] = "wait",       [NVSHARE_TRACE_BRING] = "bring",
	[NVSHARE_TRACE_BROUGHT] = "brought", [NVSHARE_TRACE_GRANT] = "grant",
	[NVSHARE_TRACE_STOP] = "stop",       [NVSHARE_TRACE_RELEASE] = "release",
	[NVSHARE_TRACE_FREEZE] = "freeze",   [NVSHARE_TRACE_THAW] = "thaw",
	[NVSHARE_TRACE_ORION] = "orion",
};

const char *const names_wait[NVSHARE_WAIT_COUNT] = {
	[NVSHARE_WAIT_TURN] = "turn",           [NVSHARE_WAIT_MEMORY] = "memory",
	[NVSHARE_WAIT_SWAP] = "swap",           [NVSHARE_WAIT_STUCK] = "stuck",
	[NVSHARE_WAIT_OUTSIDERS] = "outsiders", [NVSHARE_WAIT_GANG] = "gang",
};

const char *const names_obstacle[NVSHARE_OBSTACLE_COUNT] = {
	[NVSHARE_OBSTACLE_PINNED] = "pinned",           [NVSHARE_OBSTACLE_FIXED] = "fixed",
	[NVSHARE_OBSTACLE_CRITICAL] = "critical",       [NVSHARE_OBSTACLE_HUNG] = "hung",
	[NVSHARE_OBSTACLE_NOT_STOPPED] = "not-stopped", [NVSHARE_OBSTACLE_TURNS_OFF] = "turns-off",
	[NVSHARE_OBSTACLE_STOPPED] = "stopped",
};

const char *const names_event_level[NVSHARE_EVENT_LEVEL_COUNT] = {
	[NVSHARE_EVENT_INFO] = "info",
	[NVSHARE_EVENT_WARNING] = "warning",
	[NVSHARE_EVENT_ERROR] = "error",
};

const char *const names_event[NVSHARE_EVENT_COUNT] = {
	[NVSHARE_EVENT_NONE] = "none",
	[NVSHARE_EVENT_WORKER_DOWN] = "worker_down",
	[NVSHARE_EVENT_WORKER_BACK] = "worker_back",
	[NVSHARE_EVENT_GPU_ERROR] = "gpu_error",
	[NVSHARE_EVENT_GPU_UNRECOVERABLE] = "gpu_unrecoverable",
	[NVSHARE_EVENT_GPU_BACK] = "gpu_back",
	[NVSHARE_EVENT_GPU_XID] = "gpu_xid",
	[NVSHARE_EVENT_MONITOR_DOWN] = "monitor_down",
};

const char *const names_job_state[NVSHARE_JOB_STATE_COUNT] = {
	[NVSHARE_JOB_WAITING] = "waiting",
	[NVSHARE_JOB_RUNNING] = "running",
	[NVSHARE_JOB_STOPPING] = "stopping",
	[NVSHARE_JOB_DONE] = "done",
};

const char *const names_job_why[NVSHARE_JOB_WHY_COUNT] = {
	[NVSHARE_JOB_WHY_BEHIND] = "behind",   [NVSHARE_JOB_WHY_GRACE] = "grace",
	[NVSHARE_JOB_WHY_MEMORY] = "memory",   [NVSHARE_JOB_WHY_DEGREE] = "degree",
	[NVSHARE_JOB_WHY_APART] = "apart",     [NVSHARE_JOB_WHY_BOOKED] = "booked",
	[NVSHARE_JOB_WHY_OUT] = "out",         [NVSHARE_JOB_WHY_NEVER] = "never",
	[NVSHARE_JOB_WHY_REST] = "rest",       [NVSHARE_JOB_WHY_GANG] = "gang",
	[NVSHARE_JOB_WHY_MEMBERS] = "members",
};

const char *const names_job_end[NVSHARE_JOB_END_COUNT] = {
	[NVSHARE_JOB_END_EXIT] = "exit",   [NVSHARE_JOB_END_CANCEL] = "cancel",
	[NVSHARE_JOB_END_LIMIT] = "limit", [NVSHARE_JOB_END_GAVE_UP] = "gave_up",
	[NVSHARE_JOB_END_LOST] = "lost",   [NVSHARE_JOB_END_GONE] = "gone",
	[NVSHARE_JOB_END_NEVER] = "never",
};

const char *const names_verdict[NVSHARE_VERDICT_COUNT] = {
	[NVSHARE_VERDICT_FITS] = "fits",
	[NVSHARE_VERDICT_SHARES] = "shares",
	[NVSHARE_VERDICT_NOT_ASKED] = "not_asked",
	[NVSHARE_VERDICT_NOT_IN_SET] = "not_in_set",
	[NVSHARE_VERDICT_RESERVED] = "reserved",
	[NVSHARE_VERDICT_TOO_SMALL] = "too_small",
	[NVSHARE_VERDICT_OUT] = "out",
	[NVSHARE_VERDICT_APART] = "apart",
	[NVSHARE_VERDICT_DEGREE] = "degree",
	[NVSHARE_VERDICT_MEMORY] = "memory",
	[NVSHARE_VERDICT_BOOKED] = "booked",
};

void names_uuid(const char *name, const uint8_t uuid[16], char ret_text[NVSHARE_UUID_LEN])
{
	const uint8_t *u = uuid;

	(void)snprintf(ret_text, NVSHARE_UUID_LEN,
		       "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		       strstr(name, " MIG ") ? "MIG" : "GPU", u[0], u[1], u[2], u[3], u[4], u[5],
		       u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

const char *names_stopped(uint32_t flags)
{
	if (flags & NVSHARE_CLIENT_STOPPED)
		return "signal";
	return flags & NVSHARE_CLIENT_FROZEN ? "cgroup" : NULL;
}
