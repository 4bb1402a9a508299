/* SPDX-License-Identifier: Apache-2.0 */

/* Profiles of kernels as text: hostile ones are refused by line, others come back as they were. */

#include "core/orion/kernel_profile_text.h"
#include "util/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define N          8
#define LEN(array) (sizeof(array) / sizeof((array)[0]))

#define FIRST   "# nvshare kernel profiles 1\tmodel resnet50\tgpu NVIDIA H100 80GB HBM3\n"
#define COLUMNS "key\tname\tgrid_blocks\tblock_threads\tsms\tmean_ns\tmin_ns\tcount\tbytes\tclass"
#define HEAD    FIRST COLUMNS "\n"
#define KEY     "00c0ffee00c0ffee"
#define LINE    KEY "\t_Z3addPfi\t160\t256\t20\t5100\t4996\t12\t0\tunknown\n"

static const struct kernel_class_card card = {132, 3350, 989000};
static struct kernel_profiles profiles;
static struct kernel_profile_entry entries[N];
static struct kernel_profile_reader reader;

static void profiles_reset(void)
{
	kernel_profiles_init(&profiles, entries, N, &card);
}

static int text_read(const char *text, size_t len)
{
	size_t from = 0;
	int r;

	profiles_reset();
	kernel_profile_reader_init(&reader, &profiles);
	while (from < len) {
		/* Each line is a copy of its own, so that a sanitizer sees its end. */
		char line[600];
		const char *end = memchr(text + from, '\n', len - from);
		size_t n = end ? (size_t)(end - text) - from : len - from;

		assert_true(n <= sizeof(line));
		memcpy(line + sizeof(line) - n, text + from, n);
		r = kernel_profile_reader_line(&reader, line + sizeof(line) - n, n);
		kernel_profiles_assert_valid(&profiles);
		if (r)
			return r;
		from += n + 1;
	}
	return kernel_profile_reader_end(&reader);
}

static size_t text_write(char *text)
{
	size_t len = kernel_profile_text_header(&reader.header, text);

	for (uint32_t i = 0; i < profiles.used.n; i++)
		len += kernel_profile_text_line(&entries[i].profile, text + len);
	return len;
}

#define TEXT_MAX (KERNEL_PROFILE_TEXT_HEADER_MAX + (N + 1) * KERNEL_PROFILE_TEXT_LINE_MAX)

static void profiles_are_text(void **state)
{
	static const char text[] = HEAD LINE
		"ffffffffffffffff\ta b\\x09\t9223372036854775808\t1024\t65535\t1000000000000\t"
		"1000000000000\t1000000\t17592186044416\tmemory\n"
		"0000000000000000\t-\t1\t1\t1\t1\t1\t1\t1\tcompute\n";
	char written[TEXT_MAX];
	const struct kernel_profile *p;

	(void)state;
	assert_int_equal(text_read(text, sizeof(text) - 1), 0);
	assert_string_equal(reader.header.model.text, "resnet50");
	assert_string_equal(reader.header.gpu.text, "NVIDIA H100 80GB HBM3");
	assert_int_equal(profiles.used.n, 3);
	p = kernel_profiles_find(&profiles, 0x00c0ffee00c0ffee);
	assert_string_equal(p->name.text, "_Z3addPfi");
	assert_int_equal(p->blocks, 160);
	assert_int_equal(p->threads, 256);
	assert_int_equal(p->sms, 20);
	assert_int_equal(p->mean_ns, 5100);
	assert_int_equal(p->min_ns, 4996);
	assert_int_equal(p->count, 12);
	assert_int_equal(p->bytes, 0);
	assert_int_equal(p->class, KERNEL_CLASS_UNKNOWN);
	assert_int_equal(entries[1].profile.class, KERNEL_CLASS_MEMORY);
	/* The last newline may be missing, as after an editor's work. */
	assert_int_equal(text_read(text, sizeof(text) - 2), 0);
	assert_int_equal(profiles.used.n, 3);
	assert_int_equal(text_write(written), sizeof(text) - 1);
	assert_memory_equal(written, text, sizeof(text) - 1);
}

static void the_longest_line_fits(void **state)
{
	struct kernel_profile p;
	struct kernel_profile_header header;
	char text[KERNEL_PROFILE_TEXT_HEADER_MAX], long_name[300];

	(void)state;
	memset(&p, 0xff, sizeof(p));
	memset(long_name, 'a', sizeof(long_name));
	kernel_profile_name_set(&p.name, long_name, sizeof(long_name));
	p.class = KERNEL_CLASS_UNKNOWN;
	p.threads = KERNEL_PROFILE_THREADS_MAX;
	p.sms = KERNEL_PROFILE_SMS_MAX;
	p.mean_ns = p.min_ns = KERNEL_PROFILE_NS_MAX;
	p.count = KERNEL_PROFILE_COUNT_MAX;
	p.bytes = KERNEL_PROFILE_BYTES_MAX;
	assert_in_range(kernel_profile_text_line(&p, text), 200, KERNEL_PROFILE_TEXT_LINE_MAX);
	header = (struct kernel_profile_header){p.name, p.name};
	assert_in_range(kernel_profile_text_header(&header, text), 200,
			KERNEL_PROFILE_TEXT_HEADER_MAX);
}

static void profiles_come_back_as_they_were(void **state)
{
	static struct kernel_profile_entry before[N];
	char text[TEXT_MAX], again[TEXT_MAX], name[200];
	uint64_t seed = 4;

	(void)state;
	for (int run = 0; run < 300; run++) {
		size_t len;

		profiles_reset();
		for (uint64_t i = prng_below(&seed, 30); i > 0; i--) {
			struct kernel_profile_launch launch = {.name = name};

			launch.name_len = prng_below(&seed, sizeof(name));
			for (size_t c = 0; c < launch.name_len; c++)
				name[c] = (char)prng_next(&seed);
			launch.key = prng_below(&seed, 2) ? prng_next(&seed) : prng_below(&seed, 5);
			launch.blocks = prng_next(&seed) >> prng_below(&seed, 64);
			launch.threads = (uint32_t)prng_below(&seed, 1100);
			launch.work.duration_ns = prng_next(&seed) >> prng_below(&seed, 64);
			launch.work.bytes = prng_next(&seed) >> prng_below(&seed, 64);
			launch.work.sms = (uint32_t)prng_below(&seed, 133);
			(void)kernel_profiles_learn(&profiles, &launch);
		}
		kernel_profile_name_set(&reader.header.model, name, prng_below(&seed, 200));
		kernel_profile_name_set(&reader.header.gpu, name, prng_below(&seed, 200));
		len = text_write(text);
		memcpy(before, entries, sizeof(before));
		assert_int_equal(text_read(text, len), 0);
		for (uint32_t i = 0; i < profiles.used.n; i++)
			assert_memory_equal(&entries[i].profile, &before[i].profile,
					    sizeof(before[i].profile));
		assert_int_equal(text_write(again), len);
		assert_memory_equal(again, text, len);
	}
}

static void a_bad_text_is_refused_by_line_and_reason(void **state)
{
#define E(what) KERNEL_PROFILE_TEXT_E_##what
	static const struct {
		const char *text;
		int outcome;
		uint32_t line;
		const char *column;
	} table[] = {
		{"", E(HEADER), 1, NULL},
		{"\n", E(HEADER), 1, NULL},
		{LINE, E(HEADER), 1, NULL},
		{COLUMNS "\n" LINE, E(HEADER), 1, NULL},
		{" " HEAD, E(HEADER), 1, NULL},
		{"# nvshare kernel profiles\n", E(HEADER), 1, NULL},
		{"# nvshare kernel profiles x\n", E(HEADER), 1, NULL},
		{"# nvshare kernel profiles 01\n", E(HEADER), 1, NULL},
		{"# nvshare kernel profiles 0\n", E(HEADER), 1, NULL},
		{"# nvshare kernel profiles 2\n", E(VERSION), 1, NULL},
		{"# nvshare kernel profiles 10\tmodel a\tgpu b\n", E(VERSION), 1, NULL},
		{"# nvshare kernel profiles 1\n", E(HEADER), 1, "model"},
		{"# nvshare kernel profiles 1\tmodel \tgpu b\n", E(HEADER), 1, "model"},
		{"# nvshare kernel profiles 1\tmodel a\n", E(HEADER), 1, "gpu"},
		{"# nvshare kernel profiles 1\tmodel a\tgpu b\r\n", E(HEADER), 1, "gpu"},
		{FIRST, E(COLUMNS), 2, NULL},
		{FIRST "\n", E(COLUMNS), 2, "key"},
		{FIRST LINE, E(COLUMNS), 2, "key"},
		{FIRST "key\tname\tgrid_blocks\n", E(COLUMNS), 2, "block_threads"},
		{FIRST "name\tkey\n", E(COLUMNS), 2, "key"},
		{FIRST COLUMNS "\r\n", E(COLUMNS), 2, "class"},
		{HEAD "\n", E(FIELDS), 3, NULL},
		{HEAD LINE "\n", E(FIELDS), 4, NULL},
		{HEAD LINE "# a comment\n", E(FIELDS), 4, NULL},
		{HEAD KEY "\ta\t1\t32\t1\t5\t5\t1\t0\n", E(FIELDS), 3, NULL},
		{HEAD KEY "\ta\t1\t32\t1\t5\t5\t1\t0\tmemory\t\n", E(FIELDS), 3, NULL},
		{FIRST COLUMNS "\tx\n" LINE, E(FIELDS), 3, NULL},
		{HEAD LINE LINE, E(DUPLICATE), 4, NULL},
		{HEAD "00c0ffee00c0ffe\ta\t1\t32\t1\t5\t5\t1\t0\tmemory\n", E(VALUE), 3, "key"},
		{HEAD "00C0FFEE00C0FFEE\ta\t1\t32\t1\t5\t5\t1\t0\tmemory\n", E(VALUE), 3, "key"},
		{HEAD "00c0ffee00c0ffeg\ta\t1\t32\t1\t5\t5\t1\t0\tmemory\n", E(VALUE), 3, "key"},
		{HEAD KEY "\t\t1\t32\t1\t5\t5\t1\t0\tmemory\n", E(VALUE), 3, "name"},
		{HEAD KEY "\ta\x7f\t1\t32\t1\t5\t5\t1\t0\tmemory\n", E(VALUE), 3, "name"},
		{HEAD KEY "\t\xc3\t1\t32\t1\t5\t5\t1\t0\tmemory\n", E(VALUE), 3, "name"},
		{HEAD KEY "\ta\t0\t32\t1\t5\t5\t1\t0\tmemory\n", E(VALUE), 3, "grid_blocks"},
		{HEAD KEY "\ta\t9223372036854775809\t32\t1\t5\t5\t1\t0\tmemory\n", E(VALUE), 3,
		 "grid_blocks"},
		{HEAD KEY "\ta\t18446744073709551617\t32\t1\t5\t5\t1\t0\tmemory\n", E(VALUE), 3,
		 "grid_blocks"},
		{HEAD KEY "\ta\t1\t0\t1\t5\t5\t1\t0\tmemory\n", E(VALUE), 3, "block_threads"},
		{HEAD KEY "\ta\t1\t1025\t1\t5\t5\t1\t0\tmemory\n", E(VALUE), 3, "block_threads"},
		{HEAD KEY "\ta\t1\t4294967297\t1\t5\t5\t1\t0\tmemory\n", E(VALUE), 3,
		 "block_threads"},
		{HEAD KEY "\ta\t1\t32\t0\t5\t5\t1\t0\tmemory\n", E(VALUE), 3, "sms"},
		{HEAD KEY "\ta\t1\t32\t65536\t5\t5\t1\t0\tmemory\n", E(VALUE), 3, "sms"},
		{HEAD KEY "\ta\t1\t32\t-1\t5\t5\t1\t0\tmemory\n", E(VALUE), 3, "sms"},
		{HEAD KEY "\ta\t1\t32\t+1\t5\t5\t1\t0\tmemory\n", E(VALUE), 3, "sms"},
		{HEAD KEY "\ta\t1\t32\t01\t5\t5\t1\t0\tmemory\n", E(VALUE), 3, "sms"},
		{HEAD KEY "\ta\t1\t32\t1\t0\t0\t1\t0\tmemory\n", E(VALUE), 3, "mean_ns"},
		{HEAD KEY "\ta\t1\t32\t1\t5.0\t5\t1\t0\tmemory\n", E(VALUE), 3, "mean_ns"},
		{HEAD KEY "\ta\t1\t32\t1\t1000000000001\t5\t1\t0\tmemory\n", E(VALUE), 3,
		 "mean_ns"},
		{HEAD KEY "\ta\t1\t32\t1\t5\t0\t1\t0\tmemory\n", E(VALUE), 3, "min_ns"},
		{HEAD KEY "\ta\t1\t32\t1\t5\t6\t1\t0\tmemory\n", E(VALUE), 3, "min_ns"},
		{HEAD KEY "\ta\t1\t32\t1\t5\t5\t0\t0\tmemory\n", E(VALUE), 3, "count"},
		{HEAD KEY "\ta\t1\t32\t1\t5\t5\t1000001\t0\tmemory\n", E(VALUE), 3, "count"},
		{HEAD KEY "\ta\t1\t32\t1\t5\t5\t1\t\tmemory\n", E(VALUE), 3, "bytes"},
		{HEAD KEY "\ta\t1\t32\t1\t5\t5\t1\t17592186044417\tmemory\n", E(VALUE), 3, "bytes"},
		{HEAD KEY "\ta\t1\t32\t1\t5\t5\t1\t0\tmemor\n", E(VALUE), 3, "class"},
		{HEAD KEY "\ta\t1\t32\t1\t5\t5\t1\t0\tmemory \n", E(VALUE), 3, "class"},
		{HEAD KEY "\ta\t1\t32\t1\t5\t5\t1\t0\tmemory\r\n", E(VALUE), 3, "class"},
	};

	(void)state;
	for (size_t i = 0; i < LEN(table); i++) {
		assert_int_equal(text_read(table[i].text, strlen(table[i].text)), table[i].outcome);
		assert_int_equal(reader.line, table[i].line);
		if (table[i].column)
			assert_string_equal(reader.column, table[i].column);
		else
			assert_null(reader.column);
		assert_non_null(kernel_profile_text_reason(table[i].outcome));
	}
}

static void a_zero_byte_ends_no_line(void **state)
{
	static const char in_name[] = HEAD KEY "\ta\0\t1\t32\t1\t5\t5\t1\t0\tmemory\n";
	static const char in_class[] = HEAD KEY "\ta\t1\t32\t1\t5\t5\t1\t0\tmemory\0\n";

	(void)state;
	assert_int_equal(text_read(in_name, sizeof(in_name) - 1), E(VALUE));
	assert_string_equal(reader.column, "name");
	assert_int_equal(text_read(in_class, sizeof(in_class) - 1), E(VALUE));
	assert_string_equal(reader.column, "class");
}

static void a_name_of_a_file_has_its_length(void **state)
{
	char text[1000];
	int len;

	(void)state;
	len = snprintf(text, sizeof(text), HEAD KEY "\t%0127d\t1\t32\t1\t5\t5\t1\t0\tmemory\n", 0);
	assert_int_equal(text_read(text, (size_t)len), 0);
	len = snprintf(text, sizeof(text), HEAD KEY "\t%0128d\t1\t32\t1\t5\t5\t1\t0\tmemory\n", 0);
	assert_int_equal(text_read(text, (size_t)len), E(VALUE));
	assert_string_equal(reader.column, "name");
}

static void columns_of_a_later_release_are_ignored(void **state)
{
	static const char text[] =
		"# nvshare kernel profiles 1\tmodel a\tgpu b\tdriver 580\n" COLUMNS
		"\tpower_mw\t\n" KEY "\ta\t1\t32\t1\t5\t5\t1\t0\tmemory\t-7\xff\t\n";
	char written[TEXT_MAX];

	(void)state;
	assert_int_equal(text_read(text, sizeof(text) - 1), 0);
	assert_int_equal(profiles.used.n, 1);
	assert_int_equal(entries[0].profile.class, KERNEL_CLASS_MEMORY);
	(void)text_write(written);
	assert_int_equal(text_read(HEAD, sizeof(HEAD) - 1), 0); /* no kernel at all */
	assert_int_equal(profiles.used.n, 0);
}

static void a_text_with_too_many_kernels_is_refused(void **state)
{
	char text[TEXT_MAX + KERNEL_PROFILE_TEXT_LINE_MAX] = HEAD;
	size_t len = sizeof(HEAD) - 1;
	struct kernel_profile profile;

	(void)state;
	assert_int_equal(text_read(HEAD LINE, sizeof(HEAD LINE) - 1), 0);
	profile = entries[0].profile;
	for (uint64_t key = 0; key <= N; key++) {
		profile.key = key;
		len += kernel_profile_text_line(&profile, text + len);
		assert_int_equal(text_read(text, len), key < N ? 0 : E(FULL));
		assert_int_equal(reader.line, key + 3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(profiles_are_text),
		cmocka_unit_test(the_longest_line_fits),
		cmocka_unit_test(profiles_come_back_as_they_were),
		cmocka_unit_test(a_bad_text_is_refused_by_line_and_reason),
		cmocka_unit_test(a_zero_byte_ends_no_line),
		cmocka_unit_test(a_name_of_a_file_has_its_length),
		cmocka_unit_test(columns_of_a_later_release_are_ignored),
		cmocka_unit_test(a_text_with_too_many_kernels_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
