/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_THREAD_NAME_H
#define NVS_UTIL_THREAD_NAME_H

/*
 * Names the calling thread. Its maker cannot name it, because the thread may have ended by then.
 * name: a literal of at most 15 characters. The kernel would cut a longer one without a word, so
 * the compiler refuses it.
 */

#include <sys/prctl.h>

#define thread_name(name)                                                                \
	do {                                                                             \
		_Static_assert(sizeof("" name) <= 16, "the kernel keeps 15 characters"); \
		(void)prctl(PR_SET_NAME, name, 0, 0, 0);                                 \
	} while (0)

#endif
