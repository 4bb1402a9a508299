/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool terminal_has_colours(void)
{
	const char *no_color = getenv("NO_COLOR");
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(no_color && *no_color) && term && *term &&
	       strcmp(term, "dumb") != 0;
}

size_t terminal_width(void)
{
	const char *columns = getenv("COLUMNS");
	struct winsize size;

	if (isatty(STDOUT_FILENO))
		return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
	return columns ? strtoul(columns, NULL, 10) : 0;
}
