/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/rights.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum {
	LOW = NVSHARE_PRIORITY_LOW,
	NORMAL = NVSHARE_PRIORITY_NORMAL,
	HIGH = NVSHARE_PRIORITY_HIGH,
	CRITICAL = NVSHARE_PRIORITY_CRITICAL
};

static void the_most_special_rule_counts(void **state)
{
	static const struct {
		const char *rights;
		gid_t groups[2]; /* 0: none */
		uid_t uid;
		uint32_t expected;
	} rows[] = {
		{"low", {10, 0}, 1000, LOW},
		{"high", {10, 0}, 1000, HIGH},
		{"uid:1000=critical", {10, 0}, 1000, CRITICAL},
		{"uid:1000=critical", {10, 0}, 1001, NORMAL},
		{"normal,uid:1000=critical,gid:27=high", {27, 0}, 1001, HIGH},
		{"normal,uid:1000=critical,gid:27=high", {10, 27}, 1001, HIGH},
		{"gid:27=high,normal,uid:1000=low", {27, 0}, 1000, LOW},
		{"gid:10=low,gid:27=high", {27, 10}, 1, HIGH},
		{"high,gid:10=low", {10, 0}, 1, LOW},
		{"LOW,UID:1=high", {10, 0}, 5, UINT32_MAX},
		{"uid:27=low,gid:27=high", {27, 0}, 1, HIGH},
		{"low,uid:4294967294=High", {10, 0}, 4294967294u, HIGH},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct rights rights = {.priority = UINT32_MAX};

		if (rows[i].expected == UINT32_MAX) {
			assert_int_equal(rights_parse(rows[i].rights, &rights), -EINVAL);
			assert_int_equal(rights.priority, UINT32_MAX);
			continue;
		}
		assert_int_equal(rights_parse(rows[i].rights, &rights), 0);
		assert_int_equal(rights_priority(&rights, rows[i].uid, rows[i].groups,
						 rows[i].groups[1] ? 2 : 1),
				 rows[i].expected);
	}
}

static void what_is_not_of_the_form_is_refused(void **state)
{
	static const char *const bad[] = {
		"",
		",",
		"normal,",
		",high",
		"higher",
		"uid:=high",
		"uid:1000",
		"uid:-1=high",
		"uid:4294967295=high",
		"uid:x=high",
		"user:1=high",
		"gid:1=",
		"gid:1=highest",
		"uid:1000=high,gid",
		"uid:1=high uid:2=high",
		"normal,low",
		"low,uid:1=high,low",
		"uid:1000=critical,uid:1000=low",
		"gid:27=high,normal,uid:1=low,gid:27=high",
		("uid:0000000000000000000000000000000000000000000000000000000000000000000000000000000"
		 "000000000001000=high"),
		"namespace:=high",
		"namespace:ml",
		"namespace:Ml=high",
		"namespace:ml/one=high",
		"namespace:ml=high,namespace:ml=low",
		"namespace:a234567890123456789012345678901234567890123456789012345678901234=high",
	};
	struct rights rights;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(rights_parse(bad[i], &rights), -EINVAL);
}

static void there_is_room_for_so_many_rules(void **state)
{
	char text[(RIGHTS_RULES_MAX + 1) * 16] = "normal";
	struct rights rights;

	(void)state;
	for (int i = 0; i < RIGHTS_RULES_MAX; i++)
		(void)snprintf(text + strlen(text), 16, ",uid:%d=low", i);
	assert_int_equal(rights_parse(text, &rights), 0);
	assert_int_equal(rights_priority(&rights, RIGHTS_RULES_MAX - 1, NULL, 0), LOW);
	assert_int_equal(rights_priority(&rights, RIGHTS_RULES_MAX, NULL, 0), NORMAL);
	(void)snprintf(text + strlen(text), 16, ",uid:9999=low");
	assert_int_equal(rights_parse(text, &rights), -EINVAL);
}

static void of_a_pod_only_its_namespace_counts(void **state)
{
	struct rights rights;
	char text[RIGHTS_TEXT_MAX];

	(void)state;
	assert_int_equal(
		rights_parse("low,uid:0=critical,namespace:ml=high,gid:0=critical", &rights), 0);
	assert_int_equal(rights_priority_of_namespace(&rights, "ml"), HIGH);
	assert_int_equal(rights_priority_of_namespace(&rights, "m"), LOW);
	assert_int_equal(rights_priority_of_namespace(&rights, NULL), LOW);
	rights_print(&rights, text, sizeof(text));
	assert_string_equal(text, "low,uid:0=critical,namespace:ml=high,gid:0=critical");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_most_special_rule_counts),
		cmocka_unit_test(what_is_not_of_the_form_is_refused),
		cmocka_unit_test(there_is_room_for_so_many_rules),
		cmocka_unit_test(of_a_pod_only_its_namespace_counts),
	};

	return cmocka_run_group_tests_name("daemon/rights", tests, NULL, NULL);
}
