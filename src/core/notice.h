/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_NOTICE_H
#define NVS_CORE_NOTICE_H

/*
 * Holders hear that somebody waits (PREPARE), so that idle ones give up early and the others get
 * host memory ready; from then on they are asked for signs of life. When it is time to ask and
 * nobody waits any more, they hear that instead, and nothing wakes up.
 */

#include "core/sched.h"

#include <stdbool.h>
#include <stdint.h>

/* PREPARE for client, which runs; due_ns: when it may be stopped. */
void notice_tell(struct sched *sched, uint32_t client, uint64_t bytes, uint64_t due_ns);

/* Client runs no more, or is told to stop: what it was told is over. Before other changes. */
void notice_forget(struct sched *sched, uint32_t client);

/* Client runs again. A PREPARE of before that is true no more will be taken back. */
void notice_resume(struct sched *sched, uint32_t client);

/* At the end of a look at gpu: tells who does not know. false: no room for more actions. */
bool notice_update(struct sched *sched, uint32_t gpu);

/* client's beat_ns has come. */
void notice_beat(struct sched *sched, uint32_t client);

#endif
