/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes as a record of estimates, also without the first line, which mutations seldom reach. A
 * record that is refused changes nothing. One that is accepted is the same when it is written and
 * read again.
 */

#include "core/place/estimate_record.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define N    8
#define SIZE 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int fuzz_left_out(void);

static const char header[] = "nvshare-estimates 1\n";
static bool was[ESTIMATE_RECORD_E_CUT + 1];

static void check(const char *text, size_t len)
{
	static struct estimate_entry entries[N], again[N];
	static char record[ESTIMATE_RECORD_MAX(N)], rewritten[ESTIMATE_RECORD_MAX(N)];
	struct estimate estimate, other;
	struct estimate_config config;
	uint32_t line;
	size_t size;
	int r;

	estimate_config_default(&config);
	estimate_init(&estimate, entries, N, &config);
	estimate_init(&other, again, N, &config);
	r = estimate_record_read(&estimate, text, len, &line);
	estimate_assert_valid(&estimate);
	was[r] = true;
	if (r) {
		if (estimate.used.n || line == 0)
			abort();
		return;
	}
	size = estimate_record_write(&estimate, UINT32_MAX, record, sizeof(record));
	if (estimate_record_read(&other, record, size, &line) ||
	    estimate_record_write(&other, UINT32_MAX, rewritten, sizeof(rewritten)) != size ||
	    memcmp(record, rewritten, size) != 0)
		abort();
}

int fuzz_left_out(void)
{
	for (int i = 0; i <= ESTIMATE_RECORD_E_CUT; i++) {
		if (!was[i])
			return i;
	}
	return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[SIZE];

	if (size > SIZE - sizeof(header))
		return 0;
	memcpy(text, data, size);
	check(text, size);
	memcpy(text, header, sizeof(header) - 1);
	memcpy(text + sizeof(header) - 1, data, size);
	check(text, size + sizeof(header) - 1);
	return 0;
}
