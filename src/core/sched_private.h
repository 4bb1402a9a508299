/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_SCHED_PRIVATE_H
#define NVS_CORE_SCHED_PRIVATE_H
struct sched_client { int todo; };
struct sched { int todo; };
#endif
