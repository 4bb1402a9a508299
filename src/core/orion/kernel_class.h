/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_KERNEL_CLASS_H
#define NVS_CORE_KERNEL_CLASS_H

/*
 * The class of a kernel says whether arithmetic or memory limits it. Two kernels with different
 * limits disturb each other less.
 *
 * The class follows the roofline model (Williams, Waterman, Patterson: "Roofline: an insightful
 * visual performance model for multicore architectures", CACM 52(4), 2009). A kernel does at most
 * min(peak, bandwidth * ops / bytes) operations a second. The first term limits it where ops /
 * bytes is at least peak / bandwidth; else the second term does.
 *
 * - bytes and ops are known: the class is the side of the ridge peak / bandwidth.
 * - ops alone: compute-bound from 60 % of the peak on, else unknown.
 * - bytes alone: memory-bound from 60 % of the bandwidth on. Up to 30 % it is compute-bound, if the
 *   launch fills the card with warps enough. Else it is unknown.
 * - neither: unknown.
 *
 * 60 % is the rule of Orion (Strati et al., EuroSys 2024) for kernels whose operations are not
 * known. The rule for 30 % is ours. Below both roofs a kernel that fills all multiprocessors is
 * taken to be limited inside them, as long as each of their four schedulers has two warps. With
 * fewer warps or blocks the kernel may wait for latency alone.
 *
 * Limits. bytes means bytes of DRAM, so sizes of arguments mislead where caches hit. peak must be
 * that of the units in use: tensor cores do many times more than the others. A kernel that was
 * measured beside others seems slower, so its shares seem smaller. Occupancy alone says nothing,
 * because kernels reach either roof with few warps (Volkov: "Better performance at lower
 * occupancy", GTC 2010). Without counters, bytes and ops of most kernels are unknown, and so is
 * their class.
 *
 * Pure. Threading: none.
 */

#include <stdint.h>

/* Larger values count as these. */
#define KERNEL_CLASS_NS_MAX    1000000000000ull     /* 1000 s */
#define KERNEL_CLASS_BYTES_MAX (1ull << 44)         /* 16 TiB */
#define KERNEL_CLASS_OPS_MAX   10000000000000000ull /* 10^16 */

enum kernel_class {
	KERNEL_CLASS_UNKNOWN,
	KERNEL_CLASS_COMPUTE,
	KERNEL_CLASS_MEMORY,
	KERNEL_CLASS_COUNT_,
};

/* Zeroed: nothing is known of the card, so each class is unknown. */
struct kernel_class_card {
	uint32_t n_sms;
	uint32_t bandwidth_gbps; /* 10^9 bytes of DRAM a second; to 10^6 */
	uint32_t peak_gops;      /* 10^9 operations a second; to 10^7 */
};

/* One launch, as measured. 0 stands for unknown. */
struct kernel_class_work {
	uint64_t duration_ns;
	uint64_t bytes; /* read and written */
	uint64_t ops;
	uint32_t sms;                /* of kernel_class_sms() */
	uint32_t occupancy_permille; /* resident warps of those that a multiprocessor can hold */
};

enum kernel_class kernel_class_of(const struct kernel_class_card *card,
				  const struct kernel_class_work *work);

/* "unknown", "compute" or "memory". */
const char *kernel_class_name(enum kernel_class class);

/*
 * The multiprocessors that a launch of so many blocks fills, 0 to n_sms. blocks_per_sm: how many
 * fit on one (cuOccupancyMaxActiveBlocksPerMultiprocessor()); 0, unknown, counts as 1. The card may
 * spread a small launch over more multiprocessors, of which it fills none.
 */
uint32_t kernel_class_sms(uint64_t blocks, uint32_t blocks_per_sm, uint32_t n_sms);

#endif
