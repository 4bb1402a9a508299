/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_IPC_NAMES_H
#define NVS_IPC_NAMES_H

/*
 * The words that people read and write for numbers on the wire. Each array is in the order of its
 * enum in nvshare/protocol.h. Scheduler, tools and library take them from here, so that a new
 * value gets its name once.
 */

#include "nvshare/protocol.h"

extern const char *const names_mode[NVSHARE_MODE_COUNT];
extern const char *const names_policy[NVSHARE_POLICY_COUNT];
extern const char *const names_priority[NVSHARE_PRIORITY_COUNT];
extern const char *const names_switch_mode[NVSHARE_SWITCH_COUNT];
extern const char *const names_key[NVSHARE_KEY_COUNT]; /* what nvsharectl sets */
extern const char *const names_trace[NVSHARE_TRACE_COUNT];
extern const char *const names_wait[NVSHARE_WAIT_COUNT];         /* [NVSHARE_WAIT_NOT]: NULL */
extern const char *const names_obstacle[NVSHARE_OBSTACLE_COUNT]; /* [_NONE]: NULL */
extern const char *const names_event_level[NVSHARE_EVENT_LEVEL_COUNT];
extern const char *const names_event[NVSHARE_EVENT_COUNT];
extern const char *const names_job_state[NVSHARE_JOB_STATE_COUNT];
extern const char *const names_job_why[NVSHARE_JOB_WHY_COUNT]; /* [NVSHARE_JOB_WHY_NOT]: NULL */
extern const char *const names_job_end[NVSHARE_JOB_END_COUNT]; /* [NVSHARE_JOB_END_NOT]: NULL */
extern const char *const names_verdict[NVSHARE_VERDICT_COUNT];

/*
 * A GPU's UUID as text, as CUDA_VISIBLE_DEVICES takes it. GPUs and MIG instances have the same
 * bytes; only NVML's name of the GPU tells them apart.
 */
void names_uuid(const char *name, const uint8_t uuid[16], char ret_text[NVSHARE_UUID_LEN]);

/* By what the process of a client is stopped, of nvshare_status_client::flags; NULL: it goes on. */
const char *names_stopped(uint32_t flags);

#endif
