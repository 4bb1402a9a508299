/* SPDX-License-Identifier: Apache-2.0 */
#include "slurm/plug_arguments.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

static char long_path[PATH_MAX + 16];

static void arguments_have_defaults(void **state)
{
	struct plug_arguments arguments;

	(void)state;
	plug_arguments_init(&arguments, "/lib/libnvshare.so");
	assert_string_equal(arguments.library, "/lib/libnvshare.so");
	assert_string_equal(arguments.socket_dir, "");
	assert_int_equal(arguments.scheduler, PLUG_SCHEDULER_OPTIONAL);
}

static void each_argument_sets_its_value(void **state)
{
	const char *const words[] = {"scheduler=required", "library=/opt/a=b.so",
				     "socket_dir=/run/%n"};
	struct plug_arguments arguments;
	char reason[256];

	(void)state;
	plug_arguments_init(&arguments, "/lib/libnvshare.so");
	assert_int_equal(plug_arguments_parse(&arguments, N(words), words, reason, sizeof(reason)),
			 0);
	assert_string_equal(arguments.library, "/opt/a=b.so");
	assert_string_equal(arguments.socket_dir, "/run/%n");
	assert_int_equal(arguments.scheduler, PLUG_SCHEDULER_REQUIRED);
}

static void wrong_arguments_change_nothing_and_are_named(void **state)
{
	static const struct {
		const char *words[2];
		const char *reason;
	} table[] = {
		{{"library=/a", "socket=/b"},
		 "'socket=/b' is none of library=, socket_dir= and scheduler="},
		{{"library=/a", "required"},
		 "'required' is none of library=, socket_dir= and scheduler="},
		{{"library=/a", ""}, "'' is none of library=, socket_dir= and scheduler="},
		{{"library=/a", "library=/b"}, "library is given twice"},
		{{"library=/a", "socket_dir=run"},
		 "socket_dir needs an absolute path, and 'run' is none"},
		{{"library=/a", "socket_dir="},
		 "socket_dir needs an absolute path, and '' is none"},
		{{"library=/a", "scheduler=yes"},
		 "scheduler needs one of optional, required, and 'yes' is none"},
		{{"library=/a", long_path}, "socket_dir needs an absolute path"},
	};

	(void)state;
	(void)strcpy(long_path, "socket_dir=");
	memset(long_path + strlen(long_path), '/', PATH_MAX);
	for (size_t i = 0; i < N(table); i++) {
		struct plug_arguments arguments;
		char reason[2 * PATH_MAX];

		plug_arguments_init(&arguments, "/lib/libnvshare.so");
		assert_int_equal(
			plug_arguments_parse(&arguments, 2, table[i].words, reason, sizeof(reason)),
			-EINVAL);
		assert_int_equal(strncmp(reason, table[i].reason, strlen(table[i].reason)), 0);
		assert_string_equal(arguments.library, "/lib/libnvshare.so");
		assert_string_equal(arguments.socket_dir, "");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arguments_have_defaults),
		cmocka_unit_test(each_argument_sets_its_value),
		cmocka_unit_test(wrong_arguments_change_nothing_and_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
