/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_HOOK_NVML_H
#define NVS_HOOK_HOOK_NVML_H

/*
 * The management library's memory queries, answered with the program's own view of its
 * GPU, so that they agree with cuMemGetInfo(). Threading: any thread.
 */

#include <stdbool.h>

/*
 * Whether we wrap this function of libnvidia-ml.so.1. *ret_real is NULL when that library
 * is not in the process. Leaves dlerror() alone when it is not.
 */
bool hook_nvml_find(const char *name, void **ret_ours, void **ret_real);

#endif
