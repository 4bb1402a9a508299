/* SPDX-License-Identifier: Apache-2.0 */
#include "hook/base/random.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

bool random_fill(void *data, size_t size)
{
	char *at = data;

	while (size) {
		long n = syscall(SYS_getrandom, at, size, 0);

		if (n <= 0 && errno != EINTR)
			return false;
		if (n > 0) {
			at += n;
			size -= (size_t)n;
		}
	}
	return true;
}
