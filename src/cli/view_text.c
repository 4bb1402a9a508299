/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/view_private.h"

#include "util/clock.h"
#include "util/parse.h"

#include <inttypes.h>
#include <stdio.h>

struct view_text view_size(uint64_t bytes)
{
	struct view_text text = {""};

	(void)format_size(bytes, text.s, sizeof(text.s));
	return text;
}

const char *view_duration(uint64_t ns, char ret_text[VIEW_DURATION_LEN])
{
	uint64_t s = ns / CLOCK_NS_PER_SEC;

	if (s < 10)
		(void)snprintf(ret_text, VIEW_DURATION_LEN, "%.1f s",
			       (double)(ns / CLOCK_NS_PER_MS) / 1000);
	else if (s < 60)
		(void)snprintf(ret_text, VIEW_DURATION_LEN, "%u s", (unsigned int)s);
	else if (s < 3600)
		(void)snprintf(ret_text, VIEW_DURATION_LEN, "%u min %u s", (unsigned int)(s / 60),
			       (unsigned int)(s % 60));
	else if (s < 86400)
		(void)snprintf(ret_text, VIEW_DURATION_LEN, "%u h %u min", (unsigned int)(s / 3600),
			       (unsigned int)(s / 60 % 60));
	else
		(void)snprintf(ret_text, VIEW_DURATION_LEN, "%" PRIu64 " d %u h", s / 86400,
			       (unsigned int)(s / 3600 % 24));
	return ret_text;
}

struct view_text view_lasting(uint64_t ns)
{
	struct view_text text = {""};

	(void)view_duration(ns, text.s);
	return text;
}

struct view_text view_seconds(uint64_t ns)
{
	struct view_text text;

	(void)snprintf(text.s, sizeof(text.s), "%g s", (double)ns / (double)CLOCK_NS_PER_SEC);
	return text;
}
