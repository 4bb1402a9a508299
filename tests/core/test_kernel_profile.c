/* SPDX-License-Identifier: Apache-2.0 */

/* Profiles of kernels: names, keys, the table, and merging. */

#include "core/orion/kernel_profile.h"
#include "util/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define N          8
#define LEN(array) (sizeof(array) / sizeof((array)[0]))

static const struct kernel_class_card card = {132, 3350, 989000};

static struct kernel_profiles profiles;
static struct kernel_profile_entry entries[N];

static void profiles_reset(void)
{
	kernel_profiles_init(&profiles, entries, N, &card);
}

static struct kernel_profile_launch launch_of(const char *name, uint64_t blocks, uint64_t ns)
{
	return (struct kernel_profile_launch){
		.key = kernel_profile_key(kernel_profile_hash(name, strlen(name)), blocks, 256),
		.name = name,
		.name_len = strlen(name),
		.blocks = blocks,
		.threads = 256,
		.work = {.duration_ns = ns, .sms = kernel_class_sms(blocks, 8, card.n_sms)},
	};
}

static const struct kernel_profile *learn(const char *name, uint64_t ns)
{
	struct kernel_profile_launch launch = launch_of(name, 1000, ns);
	const struct kernel_profile *p = kernel_profiles_learn(&profiles, &launch);

	kernel_profiles_assert_valid(&profiles);
	assert_int_equal(p->key, launch.key);
	return p;
}

static bool knows(const char *name)
{
	return kernel_profiles_find(&profiles, launch_of(name, 1000, 1).key) != NULL;
}

/* ---- names and keys ------------------------------------------------------------ */

static void a_name_is_printable_and_cut(void **state)
{
	struct kernel_profile_name name;
	char text[200], expected[KERNEL_PROFILE_NAME_LEN];

	(void)state;
	kernel_profile_name_set(&name, "_Z3addPfi", 9);
	assert_string_equal(name.text, "_Z3addPfi");
	kernel_profile_name_set(&name, "", 0);
	assert_string_equal(name.text, "-");
	kernel_profile_name_set(&name, "a b\t\\\n\xc3\0~\x7f", 10);
	assert_string_equal(name.text, "a b\\x09\\x5c\\x0a\\xc3\\x00~\\x7f");
	memset(text, 'a', sizeof(text));
	memset(expected, 'a', sizeof(expected));
	expected[127] = 0;
	kernel_profile_name_set(&name, text, 127);
	assert_memory_equal(name.text, expected, sizeof(expected));
	memcpy(expected + 124, "...", 3);
	kernel_profile_name_set(&name, text, 128);
	assert_memory_equal(name.text, expected, sizeof(expected));
	/* An escape is kept as a whole or not at all. */
	for (size_t i = 100; i < 128; i++) {
		size_t len;

		memset(text, 'a', i);
		memset(text + i, 1, sizeof(text) - i);
		kernel_profile_name_set(&name, text, sizeof(text));
		len = strlen(name.text);
		assert_in_range(len, 121, 127);
		assert_string_equal(name.text + len - 3, "...");
		if (i < 120)
			assert_memory_equal(name.text + len - 7, "\\x01", 4);
		for (; len < sizeof(name.text); len++)
			assert_int_equal(name.text[len], 0);
	}
}

static void a_key_is_of_the_whole_name_and_of_the_size_class(void **state)
{
	static const struct {
		uint64_t a, b;
		bool is_same;
	} blocks[] = {
		{0, 1, true},
		{1, 2, false},
		{6, 7, false},
		{7, 8, false},
		{8, 9, false},
		{9, 10, true},
		{10, 11, false},
		{15, 16, true},
		{16, 17, false},
		{17, 20, true},
		{20, 21, false},
		{113, 128, true},
		{128, 129, false},
		{129, 160, true},
		{160, 161, false},
		{1ull << 63, UINT64_MAX, true},
		{1ull << 62, (1ull << 62) + 1, false},
		{1ull << 32, 1, false},
	};
	static const struct {
		uint32_t a, b;
		bool is_same;
	} threads[] = {
		{0, 1, true},      {1, 32, true},     {32, 33, false},          {33, 64, true},
		{992, 993, false}, {993, 1024, true}, {1024, UINT32_MAX, true},
	};
	uint64_t hash = kernel_profile_hash("abc", 3);
	char name[300];

	(void)state;
	for (size_t i = 0; i < LEN(blocks); i++)
		assert_int_equal(kernel_profile_key(hash, blocks[i].a, 256) ==
					 kernel_profile_key(hash, blocks[i].b, 256),
				 blocks[i].is_same);
	for (size_t i = 0; i < LEN(threads); i++)
		assert_int_equal(kernel_profile_key(hash, 9, threads[i].a) ==
					 kernel_profile_key(hash, 9, threads[i].b),
				 threads[i].is_same);
	/* Two instances of a template that differ behind the cut. */
	memset(name, 'a', sizeof(name));
	hash = kernel_profile_hash(name, sizeof(name));
	name[299] = 'b';
	assert_int_not_equal(kernel_profile_hash(name, sizeof(name)), hash);
	/* Files keep keys, so they never change. The first is a vector of FNV's authors. */
	assert_int_equal(kernel_profile_hash("foobar", 6), 0x85944171f73967e8ull);
	assert_int_equal(kernel_profile_key(kernel_profile_hash("foobar", 6), 1000, 256),
			 0x3bb6330d5068dc54ull);
}

static void a_kernel_has_few_size_classes(void **state)
{
	uint64_t last = 0;
	int n = 0;

	(void)state;
	for (uint64_t blocks = 1; blocks <= 1ull << 31; blocks += 1 + blocks / 64) {
		uint64_t key = kernel_profile_key(0, blocks, 256);

		n += key != last;
		last = key;
	}
	assert_in_range(n, 100, 125);
}

/* ---- learning ------------------------------------------------------------------ */

static void the_first_measurements_count_fully(void **state)
{
	uint64_t mean;

	(void)state;
	profiles_reset();
	assert_int_equal(learn("a", 1000)->mean_ns, 1000);
	assert_int_equal(learn("a", 2000)->mean_ns, 1500);
	assert_int_equal(learn("a", 6000)->mean_ns, 3000);
	assert_int_equal(learn("a", 3000)->min_ns, 1000);
	for (int i = 4; i < 100; i++)
		(void)learn("a", 3000);
	assert_int_equal(learn("a", 3000)->count, 101);
	/* Now one measurement is a part of the window. */
	assert_int_equal(learn("a", 3000 + 1600)->mean_ns, 3100);
	assert_int_equal(learn("a", 500)->min_ns, 500);
	assert_int_equal(learn("b", 10)->mean_ns, 10);
	assert_int_equal(learn("b", 11)->mean_ns, 11); /* 10.5, to the nearest */
	/* A kernel that takes ten times as long is known soon. */
	for (int i = 0; i < 64; i++)
		(void)learn("a", 30000);
	mean = learn("a", 30000)->mean_ns;
	assert_in_range(mean, 29000, 30000);
}

static void values_out_of_range_count_as_the_nearest(void **state)
{
	struct kernel_profile_launch launch = launch_of("a", UINT64_MAX, UINT64_MAX);
	const struct kernel_profile *p;

	(void)state;
	profiles_reset();
	launch.threads = UINT32_MAX;
	launch.work.sms = UINT32_MAX;
	launch.work.bytes = UINT64_MAX;
	for (int i = 0; i < 40; i++)
		p = kernel_profiles_learn(&profiles, &launch);
	kernel_profiles_assert_valid(&profiles);
	assert_int_equal(p->mean_ns, KERNEL_PROFILE_NS_MAX);
	assert_int_equal(p->blocks, KERNEL_PROFILE_BLOCKS_MAX);
	assert_int_equal(p->threads, KERNEL_PROFILE_THREADS_MAX);
	assert_int_equal(p->sms, KERNEL_PROFILE_SMS_MAX);
	assert_int_equal(p->bytes, KERNEL_PROFILE_BYTES_MAX);
	launch = (struct kernel_profile_launch){.key = 1, .name = ""};
	p = kernel_profiles_learn(&profiles, &launch);
	kernel_profiles_assert_valid(&profiles);
	assert_string_equal(p->name.text, "-");
	assert_int_equal(p->min_ns, 1);
	assert_int_equal(p->sms, 1);
	entries[1].profile.count = KERNEL_PROFILE_COUNT_MAX;
	assert_int_equal(kernel_profiles_learn(&profiles, &launch)->count,
			 KERNEL_PROFILE_COUNT_MAX);
}

static void a_launch_keeps_what_it_does_not_tell(void **state)
{
	struct kernel_profile_launch launch = launch_of("a", 1000, 10000);
	const struct kernel_profile *p;

	(void)state;
	profiles_reset();
	launch.work.bytes = 30000000;
	p = kernel_profiles_learn(&profiles, &launch);
	assert_int_equal(p->class, KERNEL_CLASS_MEMORY);
	assert_int_equal(p->blocks, 1024);
	assert_int_equal(p->threads, 256);
	assert_int_equal(p->sms, 125);
	p = learn("a", 10000);
	assert_int_equal(p->bytes, 30000000);
	assert_int_equal(p->class, KERNEL_CLASS_MEMORY);
	launch.work.bytes = 30000;
	launch.work.sms = 132;
	launch.work.occupancy_permille = 500;
	p = kernel_profiles_learn(&profiles, &launch);
	assert_int_equal(p->bytes, 30000);
	assert_int_equal(p->class, KERNEL_CLASS_COMPUTE);
	assert_int_equal(learn("a", 10000)->sms, 132);
	assert_int_equal(profiles.used.n, 1);
}

static void the_least_recently_used_kernel_goes(void **state)
{
	static const char *const names[N + 2] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};

	(void)state;
	profiles_reset();
	assert_false(knows("a"));
	for (int i = 0; i < N; i++)
		(void)learn(names[i], 100);
	assert_true(knows("a")); /* it is used */
	(void)learn("b", 100);   /* so is this one */
	(void)learn("i", 100);
	(void)learn("j", 100);
	kernel_profiles_assert_valid(&profiles);
	for (int i = 0; i < N + 2; i++)
		assert_int_equal(knows(names[i]), i != 2 && i != 3);
	/* The slots keep their order: those that went gave theirs to those that came. */
	assert_string_equal(entries[0].profile.name.text, "a");
	assert_string_equal(entries[2].profile.name.text, "i");
	assert_string_equal(entries[3].profile.name.text, "j");
	assert_string_equal(entries[4].profile.name.text, "e");
}

static void the_table_finds_what_a_plain_array_finds(void **state)
{
	uint64_t seed = 1, keys[24], used[24] = {0}, now = 0;
	struct kernel_profile_launch launch = launch_of("a", 1000, 100);

	(void)state;
	profiles_reset();
	for (int i = 0; i < 24; i++)
		keys[i] = i % 2 ? prng_next(&seed) : (uint64_t)i << (i % 3 * 20);
	for (int step = 0; step < 20000; step++) {
		uint64_t at = prng_below(&seed, 24), n_later = 0;
		bool is_known;

		/* A key is known while fewer than N others were used later. */
		for (int i = 0; i < 24; i++)
			n_later += used[i] > used[at];
		is_known = used[at] > 0 && n_later < N;
		launch.key = keys[at];
		if (prng_below(&seed, 2)) {
			assert_int_equal(kernel_profiles_find(&profiles, keys[at]) != NULL,
					 is_known);
			if (is_known)
				used[at] = ++now;
			else
				used[at] = 0;
		} else {
			uint32_t count = kernel_profiles_learn(&profiles, &launch)->count;

			assert_int_equal(count > 1, is_known);
			used[at] = ++now;
		}
		kernel_profiles_assert_valid(&profiles);
	}
}

/* ---- merging ------------------------------------------------------------------- */

static struct kernel_profile profile_of(uint64_t key, uint64_t mean, uint64_t min, uint32_t count)
{
	return (struct kernel_profile){
		.key = key,
		.name = {"k"},
		.blocks = 1,
		.mean_ns = mean,
		.min_ns = min,
		.threads = 32,
		.sms = 1,
		.count = count,
	};
}

static struct kernel_profile added(const struct kernel_profile *a, const struct kernel_profile *b)
{
	profiles_reset();
	assert_true(kernel_profiles_add(&profiles, a));
	assert_true(kernel_profiles_add(&profiles, b));
	kernel_profiles_assert_valid(&profiles);
	return entries[0].profile;
}

static void counts_are_weights(void **state)
{
	struct kernel_profile a = profile_of(1, 1000, 900, 30), b = profile_of(1, 2000, 800, 10);
	struct kernel_profile sum;

	(void)state;
	a.sms = 2;
	a.bytes = 50;
	a.class = KERNEL_CLASS_COMPUTE;
	sum = added(&a, &b);
	assert_int_equal(sum.mean_ns, 1250);
	assert_int_equal(sum.min_ns, 800);
	assert_int_equal(sum.count, 40);
	assert_int_equal(sum.sms, 2);
	assert_int_equal(sum.bytes, 50);
	assert_int_equal(sum.class, KERNEL_CLASS_COMPUTE);
	b.class = KERNEL_CLASS_MEMORY;
	assert_int_equal(added(&a, &b).class, KERNEL_CLASS_UNKNOWN);
	/* The largest values. */
	a = profile_of(1, KERNEL_PROFILE_NS_MAX, KERNEL_PROFILE_NS_MAX, KERNEL_PROFILE_COUNT_MAX);
	sum = added(&a, &a);
	assert_int_equal(sum.mean_ns, KERNEL_PROFILE_NS_MAX);
	assert_int_equal(sum.count, KERNEL_PROFILE_COUNT_MAX);
}

static struct kernel_profile profile_random(uint64_t *seed)
{
	uint64_t min = 1 + prng_below(seed, prng_below(seed, 2) ? 100 : KERNEL_PROFILE_NS_MAX);
	struct kernel_profile p = profile_of(
		prng_below(seed, 6), min + prng_below(seed, KERNEL_PROFILE_NS_MAX - min + 1), min,
		(uint32_t)(1 + prng_below(seed, KERNEL_PROFILE_COUNT_MAX)));

	p.sms = (uint32_t)(1 + prng_below(seed, 200));
	p.bytes = prng_below(seed, 3);
	p.class = (enum kernel_class)prng_below(seed, KERNEL_CLASS_COUNT_);
	return p;
}

static void the_order_of_two_makes_no_difference(void **state)
{
	uint64_t seed = 2;

	(void)state;
	for (int i = 0; i < 2000; i++) {
		struct kernel_profile a = profile_random(&seed), b = profile_random(&seed), ab, ba;

		b.key = a.key;
		ab = added(&a, &b);
		ba = added(&b, &a);
		assert_memory_equal(&ab, &ba, sizeof(ab));
	}
}

static void tables_are_merged(void **state)
{
	static struct kernel_profile_entry a_entries[N], b_entries[N];
	struct kernel_profiles a, b;
	uint64_t seed = 3;

	(void)state;
	for (int run = 0; run < 200; run++) {
		struct kernel_profile p, mine, yours;

		kernel_profiles_init(&a, a_entries, N, &card);
		kernel_profiles_init(&b, b_entries, N, &card);
		for (uint64_t i = prng_below(&seed, 9); i > 0; i--) {
			p = profile_random(&seed);
			assert_true(kernel_profiles_add(prng_below(&seed, 2) ? &a : &b, &p));
		}
		profiles_reset();
		assert_int_equal(kernel_profiles_merge(&profiles, &a), 0);
		assert_int_equal(kernel_profiles_merge(&profiles, &b), 0);
		assert_int_equal(kernel_profiles_merge(&b, &a), 0);
		kernel_profiles_assert_valid(&b);
		assert_int_equal(b.used.n, profiles.used.n);
		for (uint32_t i = 0; i < profiles.used.n; i++) {
			mine = profiles.entries[i].profile;
			yours = *kernel_profiles_find(&b, mine.key);
			assert_memory_equal(&mine, &yours, sizeof(mine));
		}
	}
}

static void a_full_table_keeps_its_own_kernels(void **state)
{
	static struct kernel_profile_entry from_entries[N];
	struct kernel_profiles from;
	struct kernel_profile p;

	(void)state;
	profiles_reset();
	kernel_profiles_init(&from, from_entries, N, &card);
	for (uint64_t key = 1; key <= 5; key++) {
		p = profile_of(key, 100, 100, 1);
		assert_true(kernel_profiles_add(&from, &p));
	}
	(void)learn("a", 100);
	(void)learn("b", 100);
	(void)learn("c", 100);
	(void)learn("d", 100);
	assert_int_equal(kernel_profiles_merge(&profiles, &from), 1);
	kernel_profiles_assert_valid(&profiles);
	assert_null(kernel_profiles_find(&profiles, 5));
	/* Those that came by the merge are the first to go. */
	(void)learn("e", 100);
	(void)learn("f", 100);
	(void)learn("g", 100);
	assert_true(knows("a") && knows("b") && knows("c") && knows("d"));
	/* A kernel that the full table has is added. */
	p = entries[0].profile;
	assert_true(kernel_profiles_add(&profiles, &p));
	assert_int_equal(entries[0].profile.count, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_is_printable_and_cut),
		cmocka_unit_test(a_key_is_of_the_whole_name_and_of_the_size_class),
		cmocka_unit_test(a_kernel_has_few_size_classes),
		cmocka_unit_test(the_first_measurements_count_fully),
		cmocka_unit_test(values_out_of_range_count_as_the_nearest),
		cmocka_unit_test(a_launch_keeps_what_it_does_not_tell),
		cmocka_unit_test(the_least_recently_used_kernel_goes),
		cmocka_unit_test(the_table_finds_what_a_plain_array_finds),
		cmocka_unit_test(counts_are_weights),
		cmocka_unit_test(the_order_of_two_makes_no_difference),
		cmocka_unit_test(tables_are_merged),
		cmocka_unit_test(a_full_table_keeps_its_own_kernels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
