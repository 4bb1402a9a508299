/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_FEATURE_FILE_H
#define NVS_K8S_FEATURE_FILE_H

/*
 * The node's load as labels, by a file that Node Feature Discovery reads: lines "NAME=VALUE", and
 * a time when they expire, so that the labels of a plugin that died go away. The cluster's API is
 * not needed.
 *
 * The file is replaced as a whole. Its temporary name begins with a dot, which NFD does not read.
 * Threading: none.
 */

#include "k8s/devices.h"

#include <time.h>

#define FEATURE_FILE_LEN 8192

/* The file's text, which expires at the given time. Pure. */
void feature_file_print(const struct devices *devices, time_t expires, char buf[FEATURE_FILE_LEN]);

/* 0 or -errno. The folder must be there. */
int feature_file_write(const char *path, const char *text);

/* Takes the labels away. */
void feature_file_remove(const char *path);

#endif
