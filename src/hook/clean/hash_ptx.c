/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The kernel, as PTX written by hand, so that a build needs no toolkit. The driver compiles it for
 * its GPU. Version 7.0 and sm_52 are the oldest that all drivers of CUDA 11 to 13 compile. The key
 * is no part of the text, since the driver keeps compiled texts in files.
 *
 * A block of threads has one piece at a time. Thread t has vector t of each row. It keeps its part
 * of the key in registers, which is why passes move the key by whole rows. Each block of the piece
 * costs a thread eight loads, 128 additions and 64 multiplications. A warp then adds up its
 * threads' sums. The sums over the piece follow once a piece, when thread t has value t.
 *
 * The stack is never used: the pager context has the least that the driver grants.
 */

#include "hook/clean/hash_ptx.h"

#include "util/digest.h"

_Static_assert(DIGEST_LANES == 256 && HASH_PTX_THREADS == 256, "a thread for each vector of a row");
_Static_assert(DIGEST_PASSES *DIGEST_BLOCKS == 256, "a thread for each value of a piece");
_Static_assert(DIGEST_UNIT == 16 && DIGEST_ROWS == 8 && DIGEST_PASSES == 4 && DIGEST_SUMS == 3 &&
		       DIGEST_BLOCK == 32768,
	       "the numbers below");
_Static_assert(sizeof(struct digest) == 24 && sizeof(struct hash_ptx_job) == 16 &&
		       sizeof(struct digest_key) == 57392,
	       "the layouts below");

/* clang-format off */

/* Rows of a piece, and of the key, are 4096 bytes. */
#define KEY_ROW(r, a, b, c, d)                                                            \
	"ld.global.v4.u32 {%k" #a ", %k" #b ", %k" #c ", %k" #d "}, [%key + 4096 * " #r "];\n"

#define LOAD(r, a, b, c, d)                                                               \
	"ld.global.cs.v4.u32 {%m" #a ", %m" #b ", %m" #c ", %m" #d "}, [%src + 4096 * " #r "];\n"

/* Vectors behind the piece's end are zero. */
#define LOAD_PART(r, a, b, c, d)                                                          \
	"mov.u32 %m" #a ", 0;\n"                                                          \
	"mov.u32 %m" #b ", 0;\n"                                                          \
	"mov.u32 %m" #c ", 0;\n"                                                          \
	"mov.u32 %m" #d ", 0;\n"                                                          \
	"add.u32 %x, %at, 4096 * " #r ";\n"                                               \
	"setp.lt.u32 %p, %x, %bytes;\n"                                                   \
	"@%p " LOAD(r, a, b, c, d)

/* %acc += (%ma + %ki) * (%mb + %kj): sums modulo 2^32, a product of 64 bits. */
#define PRODUCT(acc, a, b, i, j)                                                          \
	"add.u32 %x, %m" #a ", %k" #i ";\n"                                               \
	"add.u32 %y, %m" #b ", %k" #j ";\n"                                               \
	"mad.wide.u32 %acc" #acc ", %x, %y, %acc" #acc ";\n"

#define VECTOR(acc, a, b, c, d, i, j, k, l) PRODUCT(acc, a, b, i, j) PRODUCT(acc, c, d, k, l)

/* One row with four rows of the key, one a pass. */
#define ROW(a, b, c, d, ...) ROW_(a, b, c, d, __VA_ARGS__)
#define ROW_(a, b, c, d, k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13, k14, k15) \
	VECTOR(0, a, b, c, d, k0, k1, k2, k3)                                             \
	VECTOR(1, a, b, c, d, k4, k5, k6, k7)                                             \
	VECTOR(2, a, b, c, d, k8, k9, k10, k11)                                           \
	VECTOR(3, a, b, c, d, k12, k13, k14, k15)

/* %to = the same register of the thread whose number in the warp differs in one bit. */
#define FROM_LANE(to, from, bit)                                                          \
	"mov.b64 {%x, %y}, " from ";\n"                                                   \
	"shfl.sync.bfly.b32 %x, %x, " #bit ", 31, 0xffffffff;\n"                          \
	"shfl.sync.bfly.b32 %y, %y, " #bit ", 31, 0xffffffff;\n"                          \
	"mov.b64 " to ", {%x, %y};\n"

#define FOLD_ADD(acc, bit) FROM_LANE("%z", acc, bit) "add.u64 " acc ", " acc ", %z;\n"
#define FOLD(acc)                                                                         \
	FOLD_ADD(acc, 16) FOLD_ADD(acc, 8) FOLD_ADD(acc, 4) FOLD_ADD(acc, 2) FOLD_ADD(acc, 1)

/* a = a modulo 2^61 - 1 */
#define REDUCE(a)                                                                         \
	"shr.u64 %z, " a ", 61;\n"                                                        \
	"and.b64 " a ", " a ", 0x1fffffffffffffff;\n"                                     \
	"add.u64 " a ", " a ", %z;\n"                                                     \
	"setp.ge.u64 %p, " a ", 0x1fffffffffffffff;\n"                                    \
	"@%p sub.u64 " a ", " a ", 0x1fffffffffffffff;\n"

/* to = a * b modulo 2^61 - 1; a * b < 2^93 */
#define MULTIPLY(to, a, b)                                                                \
	"mul.lo.u64 " to ", " a ", " b ";\n"                                              \
	"mul.hi.u64 %u, " a ", " b ";\n"                                                  \
	"shl.b64 %u, %u, 3;\n"                                                            \
	"shr.u64 %z, " to ", 61;\n"                                                       \
	"or.b64 %u, %u, %z;\n"                                                            \
	"and.b64 " to ", " to ", 0x1fffffffffffffff;\n"                                   \
	"add.u64 " to ", " to ", %u;\n"                                                   \
	REDUCE(to)

/* Four sums of a warp stay below 2^63. */
#define FOLD_REDUCE(acc)                                                                  \
	FOLD_ADD(acc, 16) FOLD_ADD(acc, 8) REDUCE(acc)                                    \
	FOLD_ADD(acc, 4) FOLD_ADD(acc, 2) REDUCE(acc)                                     \
	FOLD_ADD(acc, 1) REDUCE(acc)

/* %acc<i> = the part of this thread in sum i; of thread 0, with the piece's length. */
#define SUM(i)                                                                            \
	"ld.global.v2.u64 {%f0, %f1}, [%key + 45056 + 4112 * " #i "];\n"                  \
	"ld.global.u64 %f2, [%length + 4112 * " #i "];\n"                                 \
	MULTIPLY("%acc" #i, "%f0", "%lower")                                              \
	MULTIPLY("%f0", "%f1", "%upper")                                                  \
	MULTIPLY("%f1", "%f2", "%long")                                                   \
	"add.u64 %acc" #i ", %acc" #i ", %f0;\n"                                          \
	"add.u64 %acc" #i ", %acc" #i ", %f1;\n"                                          \
	REDUCE("%acc" #i)                                                                 \
	FOLD_REDUCE("%acc" #i)                                                            \
	"@%first st.shared.u64 [%wsum + 64 * " #i "], %acc" #i ";\n"

/* A value of this thread is the sum over all warps. */
#define ADD_WARP(w)                                                                       \
	"ld.shared.u64 %z, [%value + 2048 * " #w "];\n"                                   \
	"add.u64 %v, %v, %z;\n"

/* Eight sums, each below 2^61 - 1, are below 2^64. */
#define ADD_SUM(i, w)                                                                     \
	"ld.shared.u64 %z, [%sum + 64 * " #i " + 8 * " #w "];\n"                          \
	"add.u64 %v, %v, %z;\n"
#define STORE_SUM(i)                                                                      \
	"mov.u64 %v, 0;\n"                                                                \
	ADD_SUM(i, 0) ADD_SUM(i, 1) ADD_SUM(i, 2) ADD_SUM(i, 3)                           \
	ADD_SUM(i, 4) ADD_SUM(i, 5) ADD_SUM(i, 6) ADD_SUM(i, 7)                           \
	REDUCE("%v")                                                                      \
	"@%zero st.global.u64 [%out + 8 * " #i "], %v;\n"

const char hash_ptx[] =
	".version 7.0\n"
	".target sm_52\n"
	".address_size 64\n"
	".visible .global .align 16 .b8 nvs_digest_key[57392];\n"

	".visible .entry nvs_digest(.param .u64 jobs, .param .u64 digests, .param .u64 the_key,\n"
	"                           .param .u32 n)\n"
	/* Less than 128 registers, so that two blocks of threads run on a multiprocessor. */
	".maxntid 256, 1, 1\n"
	".minnctapersm 2\n"
	"{\n"
	".reg .pred %p, %first, %zero;\n"
	".reg .b32 %t, %piece, %grid, %pieces, %bytes, %base, %at, %part, %dst, %value, %sum, %wsum;\n"
	".reg .b32 %x, %y, %m<32>, %k<44>;\n"
	".reg .b64 %jobs, %digests, %key, %length, %offset, %src, %long, %out;\n"
	".reg .b64 %u, %v, %z, %lower, %upper, %f<3>, %acc<4>;\n"
	".shared .align 16 .b8 values[16384];\n" /* of each warp, 256 */
	".shared .align 16 .b8 sums[192];\n"     /* of each sum, 8 */

	"ld.param.u64 %jobs, [jobs];\n"
	"ld.param.u64 %digests, [digests];\n"
	"ld.param.u64 %length, [the_key];\n"
	"ld.param.u32 %pieces, [n];\n"
	"cvta.to.global.u64 %jobs, %jobs;\n"
	"cvta.to.global.u64 %digests, %digests;\n"
	"cvta.to.global.u64 %length, %length;\n"

	"mov.u32 %t, %tid.x;\n"
	"mul.wide.u32 %offset, %t, 16;\n"
	"add.u64 %key, %length, %offset;\n"
	"add.u64 %length, %length, 49152;\n" /* the factor of sum 0 for the length */
	"setp.eq.u32 %zero, %t, 0;\n"
	"and.b32 %x, %t, 31;\n"
	"setp.eq.u32 %first, %x, 0;\n"
	"mov.u32 %value, values;\n"
	"mad.lo.u32 %value, %t, 8, %value;\n"
	"mov.u32 %sum, sums;\n"
	"shr.u32 %x, %t, 5;\n"
	"mad.lo.u32 %wsum, %x, 8, %sum;\n"

	KEY_ROW(0, 0, 1, 2, 3)
	KEY_ROW(1, 4, 5, 6, 7)
	KEY_ROW(2, 8, 9, 10, 11)
	KEY_ROW(3, 12, 13, 14, 15)
	KEY_ROW(4, 16, 17, 18, 19)
	KEY_ROW(5, 20, 21, 22, 23)
	KEY_ROW(6, 24, 25, 26, 27)
	KEY_ROW(7, 28, 29, 30, 31)
	KEY_ROW(8, 32, 33, 34, 35)
	KEY_ROW(9, 36, 37, 38, 39)
	KEY_ROW(10, 40, 41, 42, 43)

	"mov.u32 %piece, %ctaid.x;\n"
	"mov.u32 %grid, %nctaid.x;\n"

	"next_piece:\n"
	"setp.ge.u32 %p, %piece, %pieces;\n"
	"@%p bra done;\n"
	"mul.wide.u32 %src, %piece, 16;\n"
	"add.u64 %src, %src, %jobs;\n"
	"ld.global.v2.u64 {%src, %long}, [%src];\n"
	"cvta.to.global.u64 %src, %src;\n"
	"add.u64 %src, %src, %offset;\n"
	"cvt.u32.u64 %bytes, %long;\n"
	"shl.b32 %at, %t, 4;\n"
	"mov.u32 %base, 0;\n"
	"mov.u32 %dst, values;\n"
	"shr.u32 %x, %t, 5;\n"
	"mad.lo.u32 %dst, %x, 2048, %dst;\n"

	"next_block:\n"
	"setp.ge.u32 %p, %base, %bytes;\n"
	"@%p bra all_blocks;\n"
	"add.u32 %base, %base, 32768;\n"
	"setp.gt.u32 %p, %base, %bytes;\n"
	"@%p bra part;\n"
	LOAD(0, 0, 1, 2, 3)
	LOAD(1, 4, 5, 6, 7)
	LOAD(2, 8, 9, 10, 11)
	LOAD(3, 12, 13, 14, 15)
	LOAD(4, 16, 17, 18, 19)
	LOAD(5, 20, 21, 22, 23)
	LOAD(6, 24, 25, 26, 27)
	LOAD(7, 28, 29, 30, 31)
	"bra loaded;\n"

	"part:\n"
	LOAD_PART(0, 0, 1, 2, 3)
	LOAD_PART(1, 4, 5, 6, 7)
	LOAD_PART(2, 8, 9, 10, 11)
	LOAD_PART(3, 12, 13, 14, 15)
	LOAD_PART(4, 16, 17, 18, 19)
	LOAD_PART(5, 20, 21, 22, 23)
	LOAD_PART(6, 24, 25, 26, 27)
	LOAD_PART(7, 28, 29, 30, 31)

	"loaded:\n"
	"mov.u64 %acc0, 0;\n"
	"mov.u64 %acc1, 0;\n"
	"mov.u64 %acc2, 0;\n"
	"mov.u64 %acc3, 0;\n"
	ROW(0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
	ROW(4, 5, 6, 7, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19)
	ROW(8, 9, 10, 11, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23)
	ROW(12, 13, 14, 15, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27)
	ROW(16, 17, 18, 19, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31)
	ROW(20, 21, 22, 23, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35)
	ROW(24, 25, 26, 27, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39)
	ROW(28, 29, 30, 31, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43)
	FOLD("%acc0")
	FOLD("%acc1")
	FOLD("%acc2")
	FOLD("%acc3")
	"@%first st.shared.v2.u64 [%dst], {%acc0, %acc1};\n"
	"@%first st.shared.v2.u64 [%dst + 16], {%acc2, %acc3};\n"
	"add.u32 %dst, %dst, 32;\n"
	"add.u64 %src, %src, 32768;\n"
	"add.u32 %at, %at, 32768;\n"
	"bra next_block;\n"

	/* Four values a block. The values of blocks that are not there are not counted. */
	"all_blocks:\n"
	"bar.sync 0;\n"
	"mov.u64 %v, 0;\n"
	ADD_WARP(0) ADD_WARP(1) ADD_WARP(2) ADD_WARP(3)
	ADD_WARP(4) ADD_WARP(5) ADD_WARP(6) ADD_WARP(7)
	"shr.u32 %part, %base, 13;\n"
	"setp.lt.u32 %p, %t, %part;\n"
	"selp.u64 %v, %v, 0, %p;\n"
	"mov.b64 {%x, %y}, %v;\n"
	"cvt.u64.u32 %lower, %x;\n"
	"cvt.u64.u32 %upper, %y;\n"
	"selp.u64 %long, %long, 0, %zero;\n"
	SUM(0)
	SUM(1)
	SUM(2)
	"bar.sync 0;\n"
	"mul.wide.u32 %out, %piece, 24;\n"
	"add.u64 %out, %out, %digests;\n"
	STORE_SUM(0)
	STORE_SUM(1)
	STORE_SUM(2)
	"add.u32 %piece, %piece, %grid;\n"
	"bra next_piece;\n"

	"done:\n"
	"ret;\n"
	"}\n";
