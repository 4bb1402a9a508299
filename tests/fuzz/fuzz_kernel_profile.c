/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes as a text of kernel profiles, also without the first two lines, which mutations seldom
 * reach. A text that is refused names its line. One that is accepted is the same when it is printed
 * and read again, and can be merged into a table that is in use.
 */

#include "core/orion/kernel_profile_text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define N        8
#define SIZE     4096
#define TEXT_MAX (KERNEL_PROFILE_TEXT_HEADER_MAX + N * KERNEL_PROFILE_TEXT_LINE_MAX)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int fuzz_left_out(void);

static const struct kernel_class_card card = {132, 3350, 989000};
static bool was[KERNEL_PROFILE_TEXT_E_COUNT_];

/* Each line is given as a copy of its own, so that a sanitizer sees a read behind its end. */
static int read_line(struct kernel_profile_reader *reader, const char *line, size_t len)
{
	char *copy = malloc(len ? len : 1);
	int r;

	if (!copy)
		abort();
	memcpy(copy, line, len);
	r = kernel_profile_reader_line(reader, copy, len);
	free(copy);
	return r;
}

static int read_text(struct kernel_profile_reader *reader, struct kernel_profiles *profiles,
		     const char *text, size_t len)
{
	size_t from = 0;

	kernel_profile_reader_init(reader, profiles);
	while (from < len) {
		const char *end = memchr(text + from, '\n', len - from);
		size_t n = end ? (size_t)(end - text) - from : len - from;
		int r = read_line(reader, text + from, n);

		if (r)
			return r;
		from += n + 1;
	}
	return kernel_profile_reader_end(reader);
}

static size_t write_text(const struct kernel_profile_reader *reader, char *text)
{
	const struct kernel_profiles *profiles = reader->profiles;
	size_t len = kernel_profile_text_header(&reader->header, text);

	for (uint32_t i = 0; i < profiles->used.n; i++)
		len += kernel_profile_text_line(&profiles->entries[i].profile, text + len);
	return len;
}

/* Into a table that is half full. */
static void merge(const struct kernel_profiles *from)
{
	static struct kernel_profile_entry entries[N];
	struct kernel_profiles live;
	uint32_t n_left_out;

	kernel_profiles_init(&live, entries, N, &card);
	for (uint64_t key = 0; key < N / 2; key++) {
		struct kernel_profile_launch launch = {.key = key, .name = ""};

		(void)kernel_profiles_learn(&live, &launch);
	}
	n_left_out = kernel_profiles_merge(&live, from);
	kernel_profiles_assert_valid(&live);
	if (n_left_out > from->used.n || (n_left_out > 0 && live.used.n < N))
		abort();
}

static void check(const char *text, size_t len)
{
	static struct kernel_profile_entry entries[N], again[N];
	static char printed[TEXT_MAX], reprinted[TEXT_MAX];
	struct kernel_profiles profiles, other;
	struct kernel_profile_reader reader, rereader;
	size_t size;
	int r;

	kernel_profiles_init(&profiles, entries, N, &card);
	kernel_profiles_init(&other, again, N, &card);
	r = read_text(&reader, &profiles, text, len);
	kernel_profiles_assert_valid(&profiles);
	was[r] = true;
	if (r) {
		if (reader.line == 0 || !kernel_profile_text_reason(r))
			abort();
		return;
	}
	size = write_text(&reader, printed);
	if (read_text(&rereader, &other, printed, size) ||
	    write_text(&rereader, reprinted) != size || memcmp(printed, reprinted, size) != 0)
		abort();
	merge(&profiles);
}

int fuzz_left_out(void)
{
	for (int i = 0; i < KERNEL_PROFILE_TEXT_E_COUNT_; i++) {
		if (!was[i])
			return i;
	}
	return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct kernel_profile_header header = {{"m"}, {"g"}};
	char text[SIZE];
	size_t len;

	if (size > SIZE - KERNEL_PROFILE_TEXT_HEADER_MAX)
		return 0;
	memcpy(text, data, size);
	check(text, size);
	len = kernel_profile_text_header(&header, text);
	memcpy(text + len, data, size);
	check(text, len + size);
	return 0;
}
