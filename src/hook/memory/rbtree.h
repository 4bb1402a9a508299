/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_RBTREE_H
#define NVS_HOOK_RBTREE_H

/*
 * libbsd's red-black trees, which are macros only: nothing of libbsd is linked. Their own
 * RB_GENERATE_STATIC needs a macro __unused, a name that glibc's structures use too.
 */

#include <bsd/sys/tree.h>

#define RBTREE_GENERATE(name, type, field, compare) \
	RB_GENERATE_INTERNAL(name, type, field, compare, __attribute__((unused)) static)

#endif
