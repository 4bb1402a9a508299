/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/library_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool library_path(char *buf, size_t size)
{
	static const char *const beside[] = {"", "/../lib"};
	char self[2048];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	self[n > 0 ? n : 0] = '\0';
	slash = strrchr(self, '/');
	if (slash)
		*slash = '\0';
	for (size_t i = 0; i < sizeof(beside) / sizeof(*beside); i++) {
		(void)snprintf(buf, size, "%s%s/" LIBRARY_NAME, self, beside[i]);
		if (!access(buf, R_OK))
			return true;
	}
	(void)snprintf(buf, size, "%s", NVSHARE_LIBDIR "/" LIBRARY_NAME);
	return !access(buf, R_OK);
}
