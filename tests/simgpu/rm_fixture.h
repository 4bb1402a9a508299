/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIMGPU_RM_FIXTURE_H
#define NVS_TESTS_SIMGPU_RM_FIXTURE_H

/*
 * The program interposes ioctl as a preloaded library would: it sees the objects that the
 * driver makes, and uses what it saw to take channels off the GPU.
 */

#include "abi/rm_abi.h"
#include "sim_fixture.h"

enum { RM_GROUPS = 4 }; /* of a context; the first one computes */
enum { RM_GROUPS_MAX = 16 };

struct rm_group {
	int fd;
	uint32_t client, subdevice, handle, engine;
	uint32_t channels[8];
	unsigned int n_channels;
};

/* Since rm_setup(). */
extern struct rm_group rm_groups[RM_GROUPS_MAX];
extern unsigned int rm_n_groups, rm_n_freed, rm_n_clients;
extern uint32_t rm_subdevice;

/* The status, or -errno. */
int rm_control(const struct rm_group *group, uint32_t object, uint32_t cmd, void *params,
	       uint32_t size);

int rm_try_disable(const struct rm_group *group, bool is_off);
void rm_disable(const struct rm_group *group, bool is_off);

/*
 * All groups of the context that was made first. The one that computes thaws last: with it
 * goes on what waits for a kernel, and that may destroy the context, groups and all.
 */
void rm_freeze(bool is_off);

uint64_t rm_counter_of(enum node_counter counter);
void rm_wait_for_counter(enum node_counter counter, uint64_t more_than);

/*
 * The test's context first, so that its groups are the first ones. What should go on and
 * does not must end as a failure, not as a test that hangs.
 */
int rm_setup(void **state);

/* One page of mapped memory, as a library would give it to a program. */
struct rm_mapped {
	CUdeviceptr p;
	CUmemGenericAllocationHandle h;
};

void rm_mapped_new(struct rm_mapped *m);
void rm_mapped_free(struct rm_mapped *m);

/* Out and in again, on a stream of the current context. */
void rm_mapped_move(struct rm_mapped *m);

#endif
