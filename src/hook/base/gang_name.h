/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_GANG_NAME_H
#define NVS_HOOK_GANG_NAME_H

/*
 * The gang that a launcher of parallel programs has started this process in, by the variables that
 * the launcher sets for each worker:
 *
 *     launcher            the gang is                              its workers here
 *     torchrun            a run, and its group on this node        LOCAL_WORLD_SIZE
 *     Open MPI, PRRTE     a namespace of PMIx                      OMPI_COMM_WORLD_LOCAL_SIZE
 *     Slurm               a step of a job                          SLURM_STEP_TASKS_PER_NODE
 *
 * A gang is of one node. A worker that is alone on its node is in none, and so is one whose
 * launcher does not say how many there are.
 *
 * Pure.
 */

#include "nvshare/protocol.h"

#include <stdbool.h>

/*
 * get: secure_getenv(), or a test's function. The name starts with the launcher's, for people, and
 * ends with a digest of all that tells this gang from others. false: no gang, and ret is "".
 */
bool gang_name_find(char *(*get)(const char *name), char ret[NVSHARE_GANG_LEN]);

#endif
