/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIMGPU_NODE_DIR_H
#define NVS_TESTS_SIMGPU_NODE_DIR_H

/* The folder of a simulated node that belongs to one test program. */

extern char node_dir[]; /* its path, after node_dir_make() */

/* Makes the folder and names it in NVSHARE_SIM_DIR. -errno. */
int node_dir_make(void);

/* Nobody uses the node any more. -errno. */
int node_dir_remove(void);

#endif
