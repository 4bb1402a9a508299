/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_HOST_FILES_H
#define NVS_K8S_HOST_FILES_H

/*
 * Files of the host tell the library behind its link, and NVIDIA's driver tells of a GPU there.
 * root is where this process sees the host's files; "/" outside of a container. Threading: none.
 */

#include <limits.h>

#define HOST_FILES_NO_NUMBER (-1)

/*
 * The file that path names on the host, links resolved, as a path of the host. So containers that
 * run keep their version when the link is moved. 0 or -errno.
 */
int host_files_library(const char *root, const char *path, char ret[PATH_MAX]);

struct host_gpu {
	int numa;  /* node of the GPU; HOST_FILES_NO_NUMBER: the machine does not tell */
	int minor; /* N of /dev/nvidiaN; the same */
};

/*
 * Looks for the GPU in /proc/driver/nvidia/gpus/ADDRESS/information and for its node in
 * /sys/bus/pci/devices/ADDRESS/numa_node. A number that is not told stays HOST_FILES_NO_NUMBER.
 */
struct host_gpu host_files_gpu(const char *root, const char *uuid);

/* The value of a line "Key: \t value" in text, without the blanks. "": there is no such line. */
void host_files_value(const char *text, const char *key, char *buf, unsigned int size);

#endif
