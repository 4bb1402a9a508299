/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIMGPU_NVML_FIXTURE_H
#define NVS_TESTS_SIMGPU_NVML_FIXTURE_H

/*
 * A node of its own for each test program that asks NVML, and processes beside it. What only
 * other processes can do, holding memory and computing, is done in a peer's name: a child
 * takes a slot of the node by using NVML, and the test writes the numbers into that slot.
 */

#include "abi/nvml_abi.h"
#include "simgpu/node/node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#define MIB (1ull << 20)

/* Nobody uses the node between two tests, so each says anew what the hardware is. */
void nvml_start(const char *gpus, const char *mig, const char *memory);

/* Until it is dead and gone. */
void nvml_kill_peer(pid_t pid);

/* Also what a failed test left. */
int nvml_stop(void **state);

nvmlDevice_t nvml_gpu(unsigned int index);
nvmlDevice_t nvml_mig(unsigned int gpu_index, unsigned int index);
/* A line of the node's file of faults (src/simgpu/README.md). */
void nvml_inject(const char *line);

/* The node's memory, writable; it stays mapped. */
struct node_shared *nvml_map_node(void);

/* NULL: the process is not on the node. */
struct node_proc *nvml_slot_of(struct node_shared *shared, pid_t pid);

/* A process that is on the node and does nothing until it is killed. */
pid_t nvml_start_peer(void);

/* For the group of tests: its folder. */
int nvml_make_dir(void **state);
int nvml_remove_dir(void **state);

#endif
