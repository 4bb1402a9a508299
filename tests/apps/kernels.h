/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_KERNELS_H
#define NVS_APPS_KERNELS_H

/*
 * The kernels of the test programs, as PTX text. A real driver compiles it; the simulated one finds
 * host functions by the entry names. Each kernel strides over its grid, so any launch shape gives
 * the same result. Pointers are u64.
 *
 *   nvs_empty()
 *   nvs_fill_u32(p, n, u32 seed)            p[i] = seed + (u32)i * KERNELS_STEP
 *   nvs_verify_u32(p, n, u32 seed, errors)  *(u32 *)errors += number of other p[i]
 *   nvs_lcg_u32(p, n, u32 rounds)           rounds times p[i] = p[i] * MUL + ADD
 *   nvs_axpy_f32(y, x, f32 a, n)            y[i] = a * x[i] + y[i], two roundings
 *   nvs_touch_u8(p, n, u64 stride)          p[i * stride] += 1, for i < n
 *   nvs_spin(ns)                            runs for ns of the card's time
 *   nvs_sum_u32(p, n, out)                  *(u64 *)out += sum of p[i]
 *   nvs_count(p)                            *(u32 *)p += 1, once a launch
 *   nvs_meet(own, peer, u32 round, u64 ns)  waits for the kernel of another GPU, see below
 *
 * Kernels that meet: each GPU has three words, and no other kernel writes any of them. nvs_meet
 * writes round to peer[0] and waits until own[0] has that round, or a later one. After ns of its
 * own time it writes round to own[1], and ends: gaps of KERNELS_MEET_GAP_NS, in which it was off
 * the GPU, do not count. If peer[0] has another value than the one written, it writes round to
 * own[2], and ends: memory has been lost.
 */
#define KERNELS_MEET_WORDS  3
#define KERNELS_MEET_GAP_NS 10000000

#define KERNELS_STEP    2654435761u
#define KERNELS_LCG_MUL 1664525u
#define KERNELS_LCG_ADD 1013904223u

extern const char kernels_ptx[];

#endif
