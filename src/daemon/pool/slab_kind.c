/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pool/slab_kind.h"

#include <fcntl.h>
#include <sys/stat.h>

bool slab_kind_is_memory(int fd)
{
	struct statx st;

	/* Only memory has seals. */
	if (fcntl(fd, F_GET_SEALS) >= 0)
		return true;
	/* AT_STATX_DONT_SYNC: a file server in user space is not asked, and so cannot hang. */
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
		return false;
	return S_ISCHR(st.stx_mode) || !(st.stx_mode & S_IFMT);
}
