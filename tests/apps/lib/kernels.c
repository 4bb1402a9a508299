/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PTX written by hand, so that a build needs no toolkit. Version 7.0 and sm_52 are the oldest that
 * all drivers of CUDA 11 to 13 compile. axpy uses mul.rn and add.rn, which ptxas does not fuse, so
 * that its result is that of plain C.
 */
#include "../kernels.h"

/* clang-format off */

/* %rd1 = index of this thread in the grid, %rd2 = threads in the grid. */
#define PTX_INDEX                                   \
	"mov.u32 %r1, %ctaid.x;\n"                  \
	"mov.u32 %r2, %ntid.x;\n"                   \
	"mov.u32 %r3, %tid.x;\n"                    \
	"mov.u32 %r4, %nctaid.x;\n"                 \
	"mul.wide.u32 %rd1, %r1, %r2;\n"            \
	"cvt.u64.u32 %rd3, %r3;\n"                  \
	"add.u64 %rd1, %rd1, %rd3;\n"               \
	"mul.wide.u32 %rd2, %r4, %r2;\n"

#define PTX_REGISTERS                               \
	".reg .pred %p<4>;\n"                       \
	".reg .b32 %r<16>;\n"                       \
	".reg .f32 %f<6>;\n"                        \
	".reg .b64 %rd<16>;\n"

/* Runs the body for each index of this thread below %rd4. It may use %r and %rd from 5 on. */
#define PTX_LOOP(body)                              \
	"loop:\n"                                   \
	"setp.ge.u64 %p1, %rd1, %rd4;\n"            \
	"@%p1 bra done;\n"                          \
	body                                        \
	"add.u64 %rd1, %rd1, %rd2;\n"               \
	"bra loop;\n"                               \
	"done:\n"

const char kernels_ptx[] =
	".version 7.0\n"
	".target sm_52\n"
	".address_size 64\n"

	".visible .entry nvs_empty()\n"
	"{\n"
	"ret;\n"
	"}\n"

	".visible .entry nvs_fill_u32(.param .u64 p, .param .u64 n, .param .u32 seed)\n"
	"{\n"
	PTX_REGISTERS
	"ld.param.u64 %rd5, [p];\n"
	"ld.param.u64 %rd4, [n];\n"
	"ld.param.u32 %r5, [seed];\n"
	"cvta.to.global.u64 %rd5, %rd5;\n"
	PTX_INDEX
	PTX_LOOP(
	"cvt.u32.u64 %r6, %rd1;\n"
	"mad.lo.u32 %r6, %r6, 2654435761, %r5;\n"
	"shl.b64 %rd6, %rd1, 2;\n"
	"add.u64 %rd6, %rd6, %rd5;\n"
	"st.global.u32 [%rd6], %r6;\n")
	"ret;\n"
	"}\n"

	".visible .entry nvs_verify_u32(.param .u64 p, .param .u64 n, .param .u32 seed,\n"
	"                               .param .u64 errors)\n"
	"{\n"
	PTX_REGISTERS
	"ld.param.u64 %rd5, [p];\n"
	"ld.param.u64 %rd4, [n];\n"
	"ld.param.u32 %r5, [seed];\n"
	"ld.param.u64 %rd7, [errors];\n"
	"cvta.to.global.u64 %rd5, %rd5;\n"
	"cvta.to.global.u64 %rd7, %rd7;\n"
	"mov.u32 %r8, 0;\n"
	PTX_INDEX
	PTX_LOOP(
	"cvt.u32.u64 %r6, %rd1;\n"
	"mad.lo.u32 %r6, %r6, 2654435761, %r5;\n"
	"shl.b64 %rd6, %rd1, 2;\n"
	"add.u64 %rd6, %rd6, %rd5;\n"
	"ld.global.u32 %r7, [%rd6];\n"
	"setp.ne.u32 %p2, %r6, %r7;\n"
	"@%p2 add.u32 %r8, %r8, 1;\n")
	"setp.eq.u32 %p3, %r8, 0;\n"
	"@%p3 ret;\n"
	"atom.global.add.u32 %r9, [%rd7], %r8;\n"
	"ret;\n"
	"}\n"

	".visible .entry nvs_lcg_u32(.param .u64 p, .param .u64 n, .param .u32 rounds)\n"
	"{\n"
	PTX_REGISTERS
	"ld.param.u64 %rd5, [p];\n"
	"ld.param.u64 %rd4, [n];\n"
	"ld.param.u32 %r5, [rounds];\n"
	"cvta.to.global.u64 %rd5, %rd5;\n"
	PTX_INDEX
	PTX_LOOP(
	"shl.b64 %rd6, %rd1, 2;\n"
	"add.u64 %rd6, %rd6, %rd5;\n"
	"ld.global.u32 %r6, [%rd6];\n"
	"mov.u32 %r7, %r5;\n"
	"round:\n"
	"setp.eq.u32 %p2, %r7, 0;\n"
	"@%p2 bra rounded;\n"
	"mad.lo.u32 %r6, %r6, 1664525, 1013904223;\n"
	"sub.u32 %r7, %r7, 1;\n"
	"bra round;\n"
	"rounded:\n"
	"st.global.u32 [%rd6], %r6;\n")
	"ret;\n"
	"}\n"

	".visible .entry nvs_axpy_f32(.param .u64 y, .param .u64 x, .param .f32 a, .param .u64 n)\n"
	"{\n"
	PTX_REGISTERS
	"ld.param.u64 %rd5, [y];\n"
	"ld.param.u64 %rd6, [x];\n"
	"ld.param.f32 %f1, [a];\n"
	"ld.param.u64 %rd4, [n];\n"
	"cvta.to.global.u64 %rd5, %rd5;\n"
	"cvta.to.global.u64 %rd6, %rd6;\n"
	PTX_INDEX
	PTX_LOOP(
	"shl.b64 %rd7, %rd1, 2;\n"
	"add.u64 %rd8, %rd7, %rd6;\n"
	"add.u64 %rd9, %rd7, %rd5;\n"
	"ld.global.f32 %f2, [%rd8];\n"
	"ld.global.f32 %f3, [%rd9];\n"
	"mul.rn.f32 %f4, %f1, %f2;\n"
	"add.rn.f32 %f5, %f4, %f3;\n"
	"st.global.f32 [%rd9], %f5;\n")
	"ret;\n"
	"}\n"

	".visible .entry nvs_touch_u8(.param .u64 p, .param .u64 n, .param .u64 stride)\n"
	"{\n"
	PTX_REGISTERS
	"ld.param.u64 %rd5, [p];\n"
	"ld.param.u64 %rd4, [n];\n"
	"ld.param.u64 %rd6, [stride];\n"
	"cvta.to.global.u64 %rd5, %rd5;\n"
	PTX_INDEX
	PTX_LOOP(
	"mad.lo.u64 %rd7, %rd1, %rd6, %rd5;\n"
	"ld.global.u8 %r5, [%rd7];\n"
	"add.u32 %r5, %r5, 1;\n"
	"st.global.u8 [%rd7], %r5;\n")
	"ret;\n"
	"}\n"

	".visible .entry nvs_spin(.param .u64 ns)\n"
	"{\n"
	PTX_REGISTERS
	"ld.param.u64 %rd4, [ns];\n"
	"mov.u64 %rd5, %globaltimer;\n"
	"again:\n"
	"mov.u64 %rd6, %globaltimer;\n"
	"sub.u64 %rd7, %rd6, %rd5;\n"
	"setp.lt.u64 %p1, %rd7, %rd4;\n"
	"@%p1 bra again;\n"
	"ret;\n"
	"}\n"

	".visible .entry nvs_sum_u32(.param .u64 p, .param .u64 n, .param .u64 out)\n"
	"{\n"
	PTX_REGISTERS
	"ld.param.u64 %rd5, [p];\n"
	"ld.param.u64 %rd4, [n];\n"
	"ld.param.u64 %rd6, [out];\n"
	"cvta.to.global.u64 %rd5, %rd5;\n"
	"cvta.to.global.u64 %rd6, %rd6;\n"
	"mov.u64 %rd9, 0;\n"
	PTX_INDEX
	PTX_LOOP(
	"shl.b64 %rd7, %rd1, 2;\n"
	"add.u64 %rd7, %rd7, %rd5;\n"
	"ld.global.u32 %r5, [%rd7];\n"
	"cvt.u64.u32 %rd8, %r5;\n"
	"add.u64 %rd9, %rd9, %rd8;\n")
	"atom.global.add.u64 %rd10, [%rd6], %rd9;\n"
	"ret;\n"
	"}\n"

	".visible .entry nvs_count(.param .u64 p)\n"
	"{\n"
	PTX_REGISTERS
	"ld.param.u64 %rd5, [p];\n"
	"cvta.to.global.u64 %rd5, %rd5;\n"
	PTX_INDEX
	"setp.ne.u64 %p1, %rd1, 0;\n"
	"@%p1 ret;\n"
	"atom.global.add.u32 %r5, [%rd5], 1;\n"
	"ret;\n"
	"}\n"

	".visible .entry nvs_meet(.param .u64 own, .param .u64 peer, .param .u32 round,\n"
	"                         .param .u64 ns)\n"
	"{\n"
	PTX_REGISTERS
	"ld.param.u64 %rd5, [own];\n"
	"ld.param.u64 %rd6, [peer];\n"
	"ld.param.u32 %r5, [round];\n"
	"ld.param.u64 %rd4, [ns];\n"
	"cvta.to.global.u64 %rd5, %rd5;\n"
	"cvta.to.global.u64 %rd6, %rd6;\n"
	PTX_INDEX
	"setp.ne.u64 %p1, %rd1, 0;\n"
	"@%p1 ret;\n"
	"mov.u64 %rd7, %globaltimer;\n"
	"mov.u64 %rd10, 0;\n"
	"membar.sys;\n"
	"st.volatile.global.u32 [%rd6], %r5;\n"
	"membar.sys;\n"
	"again:\n"
	"ld.volatile.global.u32 %r6, [%rd6];\n"
	"setp.ne.u32 %p2, %r6, %r5;\n"
	"@%p2 bra lost;\n"
	"ld.volatile.global.u32 %r7, [%rd5];\n"
	"sub.u32 %r8, %r7, %r5;\n"
	"setp.ge.s32 %p1, %r8, 0;\n"
	"@%p1 bra met;\n"
	"mov.u64 %rd8, %globaltimer;\n"
	"sub.u64 %rd9, %rd8, %rd7;\n"
	"mov.u64 %rd7, %rd8;\n"
	"setp.lt.u64 %p1, %rd9, 10000000;\n"
	"@%p1 add.u64 %rd10, %rd10, %rd9;\n"
	"setp.lt.u64 %p3, %rd10, %rd4;\n"
	"@%p3 bra again;\n"
	"st.global.u32 [%rd5+4], %r5;\n"
	"ret;\n"
	"lost:\n"
	"st.global.u32 [%rd5+8], %r5;\n"
	"ret;\n"
	"met:\n"
	"membar.sys;\n"
	"ret;\n"
	"}\n";
