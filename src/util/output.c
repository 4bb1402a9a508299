/* SPDX-License-Identifier: Apache-2.0 */
#include "util/output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool output_arrived(const char *program)
{
	errno = EIO; /* stays if an earlier write failed, whose errno is not known any more */
	if (fflush(stdout) == 0 && !ferror(stdout))
		return true;
	(void)fprintf(stderr, "%s: the standard output can not be written to: %s\n", program,
		      strerror(errno));
	return false;
}
