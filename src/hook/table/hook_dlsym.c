/* SPDX-License-Identifier: Apache-2.0 */

/*
 * dlsym(), dlvsym(), dlopen() and dlmopen() as programs reach them.
 *
 * They are in assembly because the real functions must see the program's return address. By it they
 * know whose RTLD_NEXT or RTLD_DEFAULT is meant, and where the caller's libraries are searched. A C
 * compiler need not turn a last call into a jump.
 *
 * The C library has had two versions of these names, and both are exported. A program asks for the
 * version that was current where it was built. No other object refers to this file, so a test that
 * links the others keeps its dlsym().
 */

#include "hook/table/resolve.h"

#ifdef __x86_64__

#define ENTRY_BASE    "GLIBC_2.2.5"
#define ENTRY_DLMOPEN "GLIBC_2.3.4"

#define ENTRY_BEGIN(name)                                \
	".p2align 4\n"                                   \
	".globl hook_" name "_base, hook_" name "_new\n" \
	".type hook_" name "_base, @function\n"          \
	".type hook_" name "_new, @function\n"           \
	"hook_" name "_base:\n"                          \
	"hook_" name "_new:\n"                           \
	"	.cfi_startproc\n"                              \
	"	endbr64\n"                                     \
	"	pushq %rdi\n"                                  \
	"	.cfi_adjust_cfa_offset 8\n"                    \
	"	pushq %rsi\n"                                  \
	"	.cfi_adjust_cfa_offset 8\n"

#define ENTRY_END(name)                                      \
	"	popq %rsi\n"                                       \
	"	.cfi_adjust_cfa_offset -8\n"                       \
	"	popq %rdi\n"                                       \
	"	.cfi_adjust_cfa_offset -8\n"                       \
	"	testq %rcx, %rcx\n"                                \
	"	jz 1f\n"                                           \
	"	jmp *%rcx\n"                                       \
	"1:	ret\n"                                           \
	"	.cfi_endproc\n"                                    \
	".size hook_" name "_base, . - hook_" name "_base\n" \
	".size hook_" name "_new, . - hook_" name "_new\n"

/*
 * At entry the return address is at (%rsp), which is 8 below a multiple of 16. It becomes the last
 * argument, behind the two or three of the function. The answer is in %rax and %rdx.
 */
#define ENTRY_TWO(name)                  \
	ENTRY_BEGIN(name)                \
	"	subq $8, %rsp\n"               \
	"	.cfi_adjust_cfa_offset 8\n"    \
	"	movq 24(%rsp), %rdx\n"         \
	"	call resolve_" name "\n" \
	"	movq %rdx, %rcx\n"             \
	"	addq $8, %rsp\n"               \
	"	.cfi_adjust_cfa_offset -8\n" ENTRY_END(name)

#define ENTRY_THREE(name)                \
	ENTRY_BEGIN(name)                \
	"	pushq %rdx\n"                  \
	"	.cfi_adjust_cfa_offset 8\n"    \
	"	movq 24(%rsp), %rcx\n"         \
	"	call resolve_" name "\n" \
	"	movq %rdx, %rcx\n"             \
	"	popq %rdx\n"                   \
	"	.cfi_adjust_cfa_offset -8\n" ENTRY_END(name)

#elif defined(__aarch64__)

#define ENTRY_BASE    "GLIBC_2.17"
#define ENTRY_DLMOPEN "GLIBC_2.17"

/* The return address is in x30; "hint 34" is the landing pad of an indirect call. */
#define ENTRY(name, caller_register)                         \
	".p2align 4\n"                                       \
	".globl hook_" name "_base, hook_" name "_new\n"     \
	".type hook_" name "_base, %function\n"              \
	".type hook_" name "_new, %function\n"               \
	"hook_" name "_base:\n"                              \
	"hook_" name "_new:\n"                               \
	"	.cfi_startproc\n"                                  \
	"	hint 34\n"                                         \
	"	stp x29, x30, [sp, #-48]!\n"                       \
	"	.cfi_def_cfa_offset 48\n"                          \
	"	.cfi_offset 29, -48\n"                             \
	"	.cfi_offset 30, -40\n"                             \
	"	mov x29, sp\n"                                     \
	"	stp x0, x1, [sp, #16]\n"                           \
	"	str x2, [sp, #32]\n"                               \
	"	mov " caller_register ", x30\n"              \
	"	bl resolve_" name "\n"                       \
	"	mov x16, x1\n"                                     \
	"	mov x17, x0\n"                                     \
	"	ldp x0, x1, [sp, #16]\n"                           \
	"	ldr x2, [sp, #32]\n"                               \
	"	ldp x29, x30, [sp], #48\n"                         \
	"	.cfi_def_cfa_offset 0\n"                           \
	"	.cfi_restore 29\n"                                 \
	"	.cfi_restore 30\n"                                 \
	"	cbz x16, 1f\n"                                     \
	"	br x16\n"                                          \
	"1:	mov x0, x17\n"                                   \
	"	ret\n"                                             \
	"	.cfi_endproc\n"                                    \
	".size hook_" name "_base, . - hook_" name "_base\n" \
	".size hook_" name "_new, . - hook_" name "_new\n"

#define ENTRY_TWO(name)   ENTRY(name, "x2")
#define ENTRY_THREE(name) ENTRY(name, "x3")

#else
#error "dlsym() has no entry for this processor"
#endif

__asm__(".text\n" ENTRY_TWO("dlsym") ENTRY_THREE("dlvsym") ENTRY_TWO("dlopen")
		ENTRY_THREE("dlmopen"));

__asm__(".symver hook_dlsym_base, dlsym@" ENTRY_BASE "\n"
	".symver hook_dlsym_new, dlsym@@GLIBC_2.34\n"
	".symver hook_dlvsym_base, dlvsym@" ENTRY_BASE "\n"
	".symver hook_dlvsym_new, dlvsym@@GLIBC_2.34\n"
	".symver hook_dlopen_base, dlopen@" ENTRY_BASE "\n"
	".symver hook_dlopen_new, dlopen@@GLIBC_2.34\n"
	".symver hook_dlmopen_base, dlmopen@" ENTRY_DLMOPEN "\n"
	".symver hook_dlmopen_new, dlmopen@@GLIBC_2.34\n");
