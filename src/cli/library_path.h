/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_LIBRARY_PATH_H
#define NVS_CLI_LIBRARY_PATH_H

/* Where libnvshare.so is. Single-threaded. */

#include <stdbool.h>
#include <stddef.h>

#define LIBRARY_NAME "libnvshare.so"

/* Beside this program, as in a build; else where `make install` has put it. false: nowhere. */
bool library_path(char *buf, size_t size);

#endif
