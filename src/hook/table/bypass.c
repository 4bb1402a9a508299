/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/table/bypass.h"

#include "hook/base/hook_log.h"

static bool is_seen; /* atomic */

bool bypass_seen(void)
{
	return __atomic_load_n(&is_seen, __ATOMIC_ACQUIRE);
}

void bypass_note(const char *path, const char *function)
{
	__atomic_store_n(&is_seen, true, __ATOMIC_RELEASE);
	hook_warn_once("%s calls %s past nvshare: no memory of this program moves, and others that "
		       "need it wait for the program's end",
		       *path ? path : "the program", function);
}
