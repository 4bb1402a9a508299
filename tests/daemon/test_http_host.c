/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/http_host.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void an_address_and_a_known_name_are_right(void **state)
{
	static const struct {
		const char *host;
		bool is_right;
	} cases[] = {
		{"127.0.0.1", true},
		{"127.0.0.1:9401", true},
		{"10.1.2.3:80", true},
		{"[::1]", true},
		{"[::1]:9401", true},
		{"[fd00::7]:9401", true},
		{"localhost", true},
		{"LocalHost:9401", true},
		{"node", true},
		{"NODE:9401", true},
		{"gpu-1.example.com", true},
		{"127.0.0.1:", true}, /* RFC 3986: a port may be empty */
		{"", false},
		{":9401", false},
		{"evil.example", false},
		{"evil.example:9401", false},
		{"nod", false},
		{"nodes", false},
		{"node.evil.example", false},
		{"node,gpu-1.example.com", false},
		{",", false},
		{"localhost.evil.example", false},
		{"127.0.0.1.evil.example", false},
		{"127.0.0.1@evil.example", false},
		{"evil.example@127.0.0.1", false},
		{"127.0.0.1:9401:9401", false},
		{"127.0.0.1:x", false},
		{"127.0.0.1 evil.example", false},
		{"127.1", false}, /* a browser writes addresses in full */
		{"::1", false},
		{"[::1", false},
		{"[]", false},
		{"[", false},
		{"[::1]evil.example", false},
		{"[evil.example]", false},
		{"[127.0.0.1]", false},
		{"local\xc3\xb6host", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (http_host_is_right(cases[i].host, "node,gpu-1.example.com") !=
		    cases[i].is_right)
			fail_msg("'%s'", cases[i].host);
	}
	assert_false(http_host_is_right("node", ""));
	assert_true(http_host_is_right("localhost", ""));
}

static void a_host_of_any_length_is_wrong(void **state)
{
	char host[4096];

	(void)state;
	for (size_t len = 1; len < sizeof(host); len++) {
		memset(host, 'x', len);
		host[len] = '\0';
		assert_false(http_host_is_right(host, "node"));
		memset(host, '1', len);
		host[0] = '[';
		assert_false(http_host_is_right(host, "node"));
	}
}

static void lists_of_names_are_read(void **state)
{
	static const struct {
		const char *text;
		int r;
	} cases[] = {
		{"none", 0},        {"node", 0},        {"node,gpu-1.example.com", 0},
		{"", -EINVAL},      {",", -EINVAL},     {"node,", -EINVAL},
		{",node", -EINVAL}, {"a b", -EINVAL},   {"node:9401", -EINVAL},
		{"*", -EINVAL},     {"[::1]", -EINVAL},
	};
	char hosts[HTTP_HOSTS_LEN], text[HTTP_HOSTS_LEN + 1];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		(void)snprintf(hosts, sizeof(hosts), "before");
		if (http_hosts_parse(cases[i].text, hosts) != cases[i].r)
			fail_msg("'%s'", cases[i].text);
		if (cases[i].r)
			assert_string_equal(hosts, "before");
		else
			assert_string_equal(hosts, i ? cases[i].text : "");
	}
	memset(text, 'x', 254);
	text[254] = '\0';
	assert_int_equal(http_hosts_parse(text, hosts), -EINVAL); /* a name that is too long */
	for (size_t i = 0; i < HTTP_HOSTS_LEN; i++)
		text[i] = i % 2 ? ',' : 'x';
	text[HTTP_HOSTS_LEN - 1] = 'x';
	text[HTTP_HOSTS_LEN] = '\0';
	assert_int_equal(http_hosts_parse(text, hosts), -EINVAL);
	text[HTTP_HOSTS_LEN - 1] = '\0';
	text[HTTP_HOSTS_LEN - 2] = 'x';
	text[HTTP_HOSTS_LEN - 3] = 'x';
	assert_int_equal(http_hosts_parse(text, hosts), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_address_and_a_known_name_are_right),
		cmocka_unit_test(a_host_of_any_length_is_wrong),
		cmocka_unit_test(lists_of_names_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
