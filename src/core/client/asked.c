/* SPDX-License-Identifier: Apache-2.0 */

#include "core/client/asked.h"

#define US  1000u
#define PPM 1000000u

void asked_begin(struct asked *asked, bool is_all, uint64_t busy_ns, uint64_t ran_ns)
{
	asked->is_now = is_all || asked->n < ASKED_FIRST || asked->n % ASKED_EVERY == 0;
	asked->n += asked->n < UINT32_MAX;
	asked->begin_busy_ns = busy_ns;
	asked->begin_ran_ns = ran_ns;
}

void asked_end(struct asked *asked, uint64_t busy_ns, uint64_t ran_ns)
{
	if (!asked->is_now)
		return;
	asked->busy_ns -= asked->busy_ns / ASKED_SUM;
	asked->busy_ns += busy_ns - asked->begin_busy_ns;
	asked->ran_ns -= asked->ran_ns / ASKED_SUM;
	asked->ran_ns += ran_ns - asked->begin_ran_ns;
}

void asked_forget(struct asked *asked)
{
	asked->n = 0;
	asked->busy_ns = 0;
	asked->ran_ns = 0;
}

uint64_t asked_part(const struct asked *asked, uint64_t ns)
{
	/* In us, the product overflows only when some 32 bursts have had half a year. */
	uint64_t ppm = asked->ran_ns / US * PPM / (asked->busy_ns / US + 1);

	return asked->busy_ns ? ns * ppm / PPM : ns;
}
