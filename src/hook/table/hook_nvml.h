/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_HOOK_NVML_H
#define NVS_HOOK_HOOK_NVML_H

/*
 * The management library's memory queries. They answer with the program's own view of its GPU, so
 * that they agree with cuMemGetInfo(). Threading: any thread.
 */

#include <stdbool.h>

/*
 * true: we wrap this function of libnvidia-ml.so.1. *ret_real is NULL if that library is not in the
 * process; then dlerror() does not change.
 */
bool hook_nvml_find(const char *name, void **ret_ours, void **ret_real);

#endif
