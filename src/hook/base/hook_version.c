/* SPDX-License-Identifier: Apache-2.0 */

#include "nvshare/version.h"

/*
 * nvsharectl doctor reads it from the file, because a library that is loaded to be asked would
 * already hook the process that asks.
 */
__attribute__((used)) static const char hook_version[] = "nvshare_library_version=" NVSHARE_VERSION;
