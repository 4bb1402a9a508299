/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_CONTAINER_OF_H
#define NVS_UTIL_CONTAINER_OF_H

#include <stddef.h>

/* The struct of that type whose member pointer points to. */
#define container_of(pointer, type, member) \
	((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
