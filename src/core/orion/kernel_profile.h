/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_KERNEL_PROFILE_H
#define NVS_CORE_KERNEL_PROFILE_H

/*
 * Profiles of kernels: how long a kernel runs, how much of the card it fills, and what limits it.
 * The scheduler inside a process learns them from launches that it measures.
 *
 * A profile is of a kernel's name and of the launch's size, because a larger grid takes longer.
 * Programs with changing shapes launch nearly every size, so sizes are rounded up to a class. Only
 * totals count, because the card takes a grid of any shape block by block.
 * - the blocks of the grid in all, to 3 significant bits. Four classes to a doubling: sizes of a
 *   class differ by less than a quarter. A kernel has about 120 classes at the most.
 * - the threads of a block in all, to whole warps, as the card schedules them.
 * Launches of a class can still differ: by arguments (the depth of a product), by dynamic shared
 * memory, or by a last wave of few blocks. The mean lies between them.
 *
 * The mean of the durations is the plain mean up to KERNEL_PROFILE_WINDOW measurements. From then
 * on each new measurement counts 1 / KERNEL_PROFILE_WINDOW, so that the mean follows clocks and
 * neighbours. The minimum comes closest to the kernel alone.
 *
 * Pure. The table is bytes, linked by slot number: a hash table with chains. The least recently
 * used profile goes first. Slots 0 to used.n - 1 are in use, in the order in which their kernels
 * came; a kernel that comes into a full table takes the slot of the one that goes.
 * Ownership: the caller owns struct kernel_profiles and the array of entries. Threading: none.
 */

#include "core/list.h"
#include "core/orion/kernel_class.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL_PROFILE_WINDOW      16
#define KERNEL_PROFILE_NAME_LEN    128 /* with the 0 at its end */
#define KERNEL_PROFILE_BLOCKS_MAX  (1ull << 63)
#define KERNEL_PROFILE_THREADS_MAX 1024u
#define KERNEL_PROFILE_SMS_MAX     65535u
#define KERNEL_PROFILE_NS_MAX      KERNEL_CLASS_NS_MAX
#define KERNEL_PROFILE_COUNT_MAX   1000000u /* counts stay there: a weight needs no more */
#define KERNEL_PROFILE_BYTES_MAX   KERNEL_CLASS_BYTES_MAX

/*
 * Printable ASCII, never empty; the bytes behind the text are 0. Other bytes and the backslash
 * stand as \xHH. A name that is too long ends with "...". No name is "-".
 */
struct kernel_profile_name {
	char text[KERNEL_PROFILE_NAME_LEN];
};

struct kernel_profile {
	uint64_t key;
	struct kernel_profile_name name;
	uint64_t blocks;  /* of the class, 1 to KERNEL_PROFILE_BLOCKS_MAX */
	uint64_t mean_ns; /* min_ns to KERNEL_PROFILE_NS_MAX */
	uint64_t min_ns;  /* 1 or more */
	uint64_t bytes;   /* that a launch moves, to KERNEL_PROFILE_BYTES_MAX; 0: unknown */
	uint32_t threads; /* of the class, 1 to KERNEL_PROFILE_THREADS_MAX */
	uint32_t sms;     /* the most of any launch, 1 to KERNEL_PROFILE_SMS_MAX */
	uint32_t count;   /* measurements, 1 to KERNEL_PROFILE_COUNT_MAX */
	enum kernel_class class;
};

struct kernel_profile_entry {
	struct kernel_profile profile;
	struct list_link link; /* kernel_profiles::used */
	uint32_t next;         /* slot of the next one with the same hash */
	uint32_t bucket;       /* not its own: slot of the first one whose hash is this slot */
};

struct kernel_profiles {
	struct kernel_class_card card;
	struct kernel_profile_entry *entries;
	uint32_t n_entries;
	struct list used; /* least recently used first */
};

/* A launch that was measured. Values out of range count as the nearest one within. */
struct kernel_profile_launch {
	uint64_t key;     /* of kernel_profile_key(), with the blocks and threads below */
	const char *name; /* name_len bytes, as the driver has it; borrowed */
	size_t name_len;
	uint64_t blocks;               /* of the grid in all */
	uint32_t threads;              /* of a block in all */
	struct kernel_class_work work; /* its duration_ns is what is learned */
};

void kernel_profile_name_set(struct kernel_profile_name *name, const char *text, size_t len);

/* FNV-1a (Fowler, Noll, Vo) over the whole name. The caller may keep it with the function. */
uint64_t kernel_profile_hash(const char *name, size_t len);

/*
 * The key of a launch; hash: of the name. The same on every machine, as files keep it. Kernels
 * whose keys collide share a profile; of 10,000 kernels no two do, but for a chance of 3 in 10^12.
 */
uint64_t kernel_profile_key(uint64_t hash, uint64_t blocks, uint32_t threads);

/* card is copied. entries: n of them, at least 1; kept, and used, until the last call. */
void kernel_profiles_init(struct kernel_profiles *profiles, struct kernel_profile_entry *entries,
			  uint32_t n, const struct kernel_class_card *card);

/*
 * The profile of key as the most recently used one, or NULL. It is valid until the next call.
 * Takes constant time.
 */
const struct kernel_profile *kernel_profiles_find(struct kernel_profiles *profiles, uint64_t key);

/*
 * Learns from a launch; the profile counts as used. Bytes and class that this launch does not tell
 * stay as they are. Returns the profile, which is valid until the next call.
 */
const struct kernel_profile *kernel_profiles_learn(struct kernel_profiles *profiles,
						   const struct kernel_profile_launch *launch);

/*
 * Adds a profile, which is valid as above, to that of its key. Counts are weights: the order of
 * two profiles makes no difference. Bytes and multiprocessors are the larger ones; of two classes
 * that contradict each other none is left. The name stays. A kernel that the table lacks becomes
 * the least recently used one. false: the table is full, and the kernel is left out.
 */
bool kernel_profiles_add(struct kernel_profiles *profiles, const struct kernel_profile *profile);

/* Adds all profiles of from. Returns how many are left out. */
uint32_t kernel_profiles_merge(struct kernel_profiles *profiles,
			       const struct kernel_profiles *from);

/* Aborts if an invariant is broken. For tests. */
void kernel_profiles_assert_valid(const struct kernel_profiles *profiles);

#endif
