/* SPDX-License-Identifier: Apache-2.0 */

/* What limits a kernel, and how much of the card a launch fills. */

#include "core/orion/kernel_class.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define LEN(array) (sizeof(array) / sizeof((array)[0]))

/* About an H100: its ridge is at 989000 / 3350 = 295 operations a byte. */
static const struct kernel_class_card card = {132, 3350, 989000};

static void a_launch_fills_as_many_multiprocessors_as_its_blocks_need(void **state)
{
	static const struct {
		uint64_t blocks;
		uint32_t blocks_per_sm, n_sms, sms;
	} table[] = {
		{0, 8, 132, 0},
		{1, 8, 132, 1},
		{8, 8, 132, 1},
		{9, 8, 132, 2},
		{1055, 8, 132, 132},
		{1056, 8, 132, 132},
		{100000, 8, 132, 132},
		{UINT64_MAX, 1, 132, 132},
		{UINT64_MAX, 32, 132, 132},
		{5, 0, 132, 5}, /* unknown: one block fills one */
		{5, 1, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < LEN(table); i++)
		assert_int_equal(
			kernel_class_sms(table[i].blocks, table[i].blocks_per_sm, table[i].n_sms),
			table[i].sms);
}

static void the_class_follows_the_roofline(void **state)
{
	static const struct {
		struct kernel_class_work work;
		enum kernel_class class;
	} table[] = {
		/* Nothing but a duration. */
		{{.duration_ns = 10000, .sms = 132, .occupancy_permille = 1000},
		 KERNEL_CLASS_UNKNOWN},
		/* Bytes and operations: the sides of the ridge, whatever the duration. */
		{{.bytes = 1000, .ops = 295000}, KERNEL_CLASS_MEMORY},
		{{.bytes = 1000, .ops = 296000}, KERNEL_CLASS_COMPUTE},
		{{.duration_ns = 1, .bytes = 1, .ops = 1}, KERNEL_CLASS_MEMORY},
		/* In 10000 ns: 9.89e9 operations, 60 % of which are 5.934e9. */
		{{.duration_ns = 10000, .ops = 5934000000}, KERNEL_CLASS_COMPUTE},
		{{.duration_ns = 10000, .ops = 5933000000}, KERNEL_CLASS_UNKNOWN},
		/* In 10000 ns: 33.5e6 bytes, 60 % of which are 20.1e6. */
		{{.duration_ns = 10000, .bytes = 20100000}, KERNEL_CLASS_MEMORY},
		{{.duration_ns = 10000, .bytes = 20099999, .sms = 132, .occupancy_permille = 1000},
		 KERNEL_CLASS_UNKNOWN},
		/* 30 % are 10.05e6 bytes; the card must be filled. */
		{{.duration_ns = 10000, .bytes = 10050000, .sms = 132, .occupancy_permille = 125},
		 KERNEL_CLASS_COMPUTE},
		{{.duration_ns = 10000, .bytes = 10100000, .sms = 132, .occupancy_permille = 125},
		 KERNEL_CLASS_UNKNOWN},
		{{.duration_ns = 10000, .bytes = 10050000, .sms = 131, .occupancy_permille = 125},
		 KERNEL_CLASS_UNKNOWN},
		{{.duration_ns = 10000, .bytes = 10050000, .sms = 132, .occupancy_permille = 124},
		 KERNEL_CLASS_UNKNOWN},
		/* Without a duration there is no share. */
		{{.bytes = 10050000, .sms = 132, .occupancy_permille = 1000}, KERNEL_CLASS_UNKNOWN},
		/* The largest values. */
		{{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT32_MAX, UINT32_MAX},
		 KERNEL_CLASS_COMPUTE},
		{{.duration_ns = UINT64_MAX, .ops = UINT64_MAX}, KERNEL_CLASS_UNKNOWN},
		{{.duration_ns = 1, .bytes = UINT64_MAX}, KERNEL_CLASS_MEMORY},
	};

	(void)state;
	for (size_t i = 0; i < LEN(table); i++)
		assert_int_equal(kernel_class_of(&card, &table[i].work), table[i].class);
}

static void an_unknown_card_gives_no_class(void **state)
{
	static const struct kernel_class_card none = {0}, no_sms = {0, 3350, 0};
	static const struct kernel_class_card largest = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
	static const struct kernel_class_work both = {10000, 20100000, 5934000000, 132, 1000};
	static const struct kernel_class_work few = {10000, 1, 0, 132, 1000};
	static const struct kernel_class_work most = {UINT64_MAX, 0, UINT64_MAX, 132, 1000};

	(void)state;
	assert_int_equal(kernel_class_of(&none, &both), KERNEL_CLASS_UNKNOWN);
	assert_int_equal(kernel_class_of(&no_sms, &both), KERNEL_CLASS_MEMORY);
	assert_int_equal(kernel_class_of(&no_sms, &few), KERNEL_CLASS_UNKNOWN);
	assert_int_equal(kernel_class_of(&largest, &most), KERNEL_CLASS_UNKNOWN);
}

static void no_product_overflows(void **state)
{
	/* 2^25 of each rate in 2^39 ns would be 2^64. */
	static const struct kernel_class_card fast = {132, 1u << 25, 1u << 25};
	static const struct kernel_class_work bytes = {.duration_ns = 1ull << 39, .bytes = 1000};
	static const struct kernel_class_work ops = {.duration_ns = 1ull << 39, .ops = 1000};

	(void)state;
	assert_int_equal(kernel_class_of(&fast, &bytes), KERNEL_CLASS_UNKNOWN);
	assert_int_equal(kernel_class_of(&fast, &ops), KERNEL_CLASS_UNKNOWN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_launch_fills_as_many_multiprocessors_as_its_blocks_need),
		cmocka_unit_test(the_class_follows_the_roofline),
		cmocka_unit_test(an_unknown_card_gives_no_class),
		cmocka_unit_test(no_product_overflows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
