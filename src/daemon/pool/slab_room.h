/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_SLAB_ROOM_H
#define NVS_DAEMON_SLAB_ROOM_H

/*
 * How much host memory slabs may still take: of the machine, and of a borrower's control groups.
 *
 * The driver's host memory is probably charged to no control group. So the scheduler counts the
 * slabs that are lent into a group as if they were, and holds its programs to the group's limit. If
 * they are charged after all, they count twice, and fewer are lent. Only groups of version 2 are
 * looked at. As in the library, a twentieth of each limit stays free.
 *
 * Threading: any thread. Reads /proc and /sys. All sizes are bytes.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SLAB_ROOM_GROUP_LEN 512
#define SLAB_ROOM_LIMIT_LEN 32

/*
 * The setting NVSHARE_HOST_MEMORY_LIMIT: a size, or a percentage of the machine's memory; "": none.
 */
struct slab_room_limit {
	char text[SLAB_ROOM_LIMIT_LEN];
};

/* 0, or -EINVAL or -ERANGE; *ret is untouched then. "none": no limit. */
int slab_room_parse(const char *value, struct slab_room_limit *ret);

/* root: "" or, for tests, a folder with proc and sys. UINT64_MAX: there is no limit. */
uint64_t slab_room_limit(const char *root, const struct slab_room_limit *limit);

/* Bytes that the machine can spare; 0: it does not tell. */
uint64_t slab_room_available(const char *root);

/* The control group of pid, "/" for the root, or one above it. false: it has none. */
bool slab_room_group(const char *root, pid_t pid, char ret[SLAB_ROOM_GROUP_LEN]);

/* Whether group is upper, or below it. */
bool slab_room_is_in(const char *group, const char *upper);

/* Bytes of slabs that programs in group, or below it, have on loan. */
typedef uint64_t slab_room_lent_fn(const void *owner, const char *group);

/* Bytes that the limits of group and of all above it leave. UINT64_MAX: there are none. */
uint64_t slab_room_own(const char *root, const char *group, slab_room_lent_fn *lent,
		       const void *owner);

#endif
