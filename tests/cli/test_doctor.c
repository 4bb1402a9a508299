/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor.h"

#include "nvshare/version.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GIB (1ull << 30)

/* A machine where all is well. */
static struct nvshare_status_client client;

static struct doctor_facts healthy(void)
{
	client = (struct nvshare_status_client){.id = 3, .pid = 99, .name = "train"};
	return (struct doctor_facts){
		.driver = {.cuda_version = 13000,
			   .n_gpus = 2,
			   .n_vmm = 2,
			   .largest = 80 * GIB,
			   .version = "580.65.06"},
		.freeze = {.trial = DOCTOR_TRIAL_PROVEN},
		.library = {"/usr/lib/libnvshare.so", NVSHARE_VERSION},
		.process = {.pid = 7,
			    .has_cuda = true,
			    .loaded = {"/usr/lib/libnvshare.so", NVSHARE_VERSION}},
		.status = {.node = {.pid = 42, .version = NVSHARE_VERSION},
			   .clients = &client,
			   .n_clients = 1},
		.socket_dir = "/run/nvshare",
		.has_status = true,
		.has_group = true,
		.is_trusted = true,
		.host_memory = 200 * GIB,
		.group_limit = UINT64_MAX,
		.lock_limit = UINT64_MAX,
	};
}

/* The finding of that name; fails if there is none. */
static struct doctor_finding judge(const struct doctor_facts *facts, const char *wanted)
{
	struct doctor_finding finding;
	const char *name;

	for (size_t row = 0; row < doctor_rows(); row++) {
		name = doctor_judge(row, facts, &finding);
		if (name && !strcmp(name, wanted))
			return finding;
	}
	fail_msg("no finding is called %s", wanted);
	return finding;
}

static void a_healthy_machine_is_ok(void **state)
{
	struct doctor_facts facts = healthy();
	struct doctor_finding finding;

	(void)state;
	for (size_t row = 0; row < doctor_rows(); row++) {
		assert_non_null(doctor_judge(row, &facts, &finding));
		assert_int_equal(finding.level, DOCTOR_OK);
		assert_string_equal(finding.advice, "");
	}
	assert_string_equal(judge(&facts, "driver").found, "NVIDIA 580.65.06, CUDA 13.0, 2 GPUs");
}

static void a_process_is_judged_only_when_it_is_asked_for(void **state)
{
	struct doctor_facts facts = healthy();
	struct doctor_finding finding;
	size_t n = 0;

	(void)state;
	facts.process.pid = 0;
	for (size_t row = 0; row < doctor_rows(); row++)
		n += doctor_judge(row, &facts, &finding) != NULL;
	assert_int_equal(n, doctor_rows() - 1);
}

/* Each of these changes one fact of a healthy machine. */

static void no_driver(struct doctor_facts *f)
{
	f->driver = (struct doctor_driver){.nvml = DOCTOR_NO_LIBRARY, .cuda = DOCTOR_NO_LIBRARY};
}

static void hung_driver(struct doctor_facts *f)
{
	f->driver = (struct doctor_driver){.child = DOCTOR_CHILD_HANGS};
}

static void broken_driver(struct doctor_facts *f)
{
	f->driver.cuda = 999;
}

static void no_gpu(struct doctor_facts *f)
{
	f->driver.n_gpus = 0;
}

static void old_driver(struct doctor_facts *f)
{
	strcpy(f->driver.version, "470.57.02");
}

static void old_cuda(struct doctor_facts *f)
{
	f->driver.cuda_version = 12040;
}

static void one_without_vmm(struct doctor_facts *f)
{
	f->driver.n_vmm = 1;
}

static void freeze_refused(struct doctor_facts *f)
{
	f->freeze = (struct doctor_freeze){DOCTOR_TRIAL_REFUSED, 0, "MPS"};
}

static void freeze_of_client_refused(struct doctor_facts *f)
{
	f->freeze = (struct doctor_freeze){DOCTOR_TRIAL_REFUSED, 3, "a debugger is attached"};
}

static void freeze_hangs(struct doctor_facts *f)
{
	f->freeze.trial = DOCTOR_TRIAL_HANGS;
}

static void gpus_in_use(struct doctor_facts *f)
{
	f->freeze.trial = DOCTOR_TRIAL_IN_USE;
}

static void no_library(struct doctor_facts *f)
{
	f->library.path[0] = '\0';
}

static void other_library(struct doctor_facts *f)
{
	strcpy(f->library.version, "0.0.1");
}

static void unknown_library(struct doctor_facts *f)
{
	f->library.version[0] = '\0';
}

static void no_socket(struct doctor_facts *f)
{
	f->socket = ENOENT;
}

static void dead_socket(struct doctor_facts *f)
{
	f->socket = ECONNREFUSED;
}

static void closed_socket(struct doctor_facts *f)
{
	f->socket = EACCES;
}

static void strange_socket(struct doctor_facts *f)
{
	f->socket = ENOTSOCK;
}

static void no_group(struct doctor_facts *f)
{
	f->has_group = f->is_trusted = false;
}

static void mute_scheduler(struct doctor_facts *f)
{
	f->has_status = false;
}

static void other_scheduler(struct doctor_facts *f)
{
	strcpy(f->status.node.version, "0.0.1");
}

static void little_memory(struct doctor_facts *f)
{
	f->host_memory = 16 * GIB;
}

static void small_group(struct doctor_facts *f)
{
	f->group_limit = 8 * GIB;
}

static void no_process(struct doctor_facts *f)
{
	f->process.error = ENOENT;
}

static void hidden_process(struct doctor_facts *f)
{
	f->process.error = EACCES;
}

static void bare_process(struct doctor_facts *f)
{
	f->process.loaded.path[0] = '\0';
}

static void failed_preload(struct doctor_facts *f)
{
	f->process.loaded.path[0] = '\0';
	f->process.is_named = true;
}

static void replaced_library(struct doctor_facts *f)
{
	f->process.is_replaced = true;
}

static void old_process(struct doctor_facts *f)
{
	strcpy(f->process.loaded.version, "0.0.1");
}

static void stopped_program(struct doctor_facts *f)
{
	f->status.clients->flags = NVSHARE_CLIENT_STOPPED;
}

static void frozen_program(struct doctor_facts *f)
{
	f->status.clients->flags = NVSHARE_CLIENT_FROZEN;
}

static void each_fault_is_found_and_says_what_to_do(void **state)
{
	static const struct {
		void (*change)(struct doctor_facts *facts);
		const char *name;
		enum doctor_level level;
		const char *words;
	} cases[] = {
		{no_driver, "driver", DOCTOR_PROBLEM, "libcuda.so.1 is not found"},
		{no_driver, "vmm", DOCTOR_WARNING, "not known without a driver"},
		{hung_driver, "driver", DOCTOR_PROBLEM, "does not answer in time"},
		{broken_driver, "driver", DOCTOR_PROBLEM, "error 999"},
		{no_gpu, "driver", DOCTOR_PROBLEM, "shows no GPU"},
		{old_driver, "driver", DOCTOR_WARNING, "NVIDIA 470.57.02, CUDA 13.0, 2 GPUs"},
		{old_cuda, "driver", DOCTOR_WARNING, "CUDA 12.4"},
		{one_without_vmm, "vmm", DOCTOR_WARNING,
		 "GPUs without virtual memory management: 1 of 2"},
		{freeze_refused, "freeze", DOCTOR_WARNING, "a trial failed: MPS"},
		{freeze_of_client_refused, "freeze", DOCTOR_WARNING,
		 "clients cannot be frozen: a debugger is attached"},
		{freeze_hangs, "freeze", DOCTOR_PROBLEM, "did not end"},
		{gpus_in_use, "freeze", DOCTOR_WARNING, "programs use the GPUs"},
		{no_library, "library", DOCTOR_PROBLEM, "libnvshare.so is not found"},
		{other_library, "library", DOCTOR_WARNING, "version 0.0.1 of /usr/lib/libnv"},
		{unknown_library, "library", DOCTOR_WARNING, "version unknown of"},
		{no_socket, "socket", DOCTOR_PROBLEM, "there is no /run/nvshare/scheduler.sock"},
		{no_socket, "scheduler", DOCTOR_PROBLEM, "no scheduler is reached"},
		{dead_socket, "socket", DOCTOR_PROBLEM, "nobody listens on"},
		{closed_socket, "socket", DOCTOR_PROBLEM, "you have no right to"},
		{strange_socket, "socket", DOCTOR_PROBLEM, "Socket operation on non-socket"},
		{no_group, "rights", DOCTOR_WARNING, "there is no group nvshare"},
		{mute_scheduler, "scheduler", DOCTOR_PROBLEM, "does not answer as it should"},
		{other_scheduler, "scheduler", DOCTOR_WARNING, "version 0.0.1 runs as pid 42"},
		{stopped_program, "programs", DOCTOR_WARNING,
		 "client 3 (train, pid 99) is stopped (Ctrl-Z or a debugger)"},
		{frozen_program, "programs", DOCTOR_WARNING, "in a frozen control group"},
		{little_memory, "host-memory", DOCTOR_WARNING,
		 "16.0 GiB can be spared for evicted memory; the largest GPU has 80.0 GiB"},
		{small_group, "cgroup", DOCTOR_WARNING, "limits memory to 8.0 GiB"},
		{no_process, "preload", DOCTOR_PROBLEM, "there is no process 7"},
		{hidden_process, "preload", DOCTOR_WARNING, "may not look into process 7"},
		{bare_process, "preload", DOCTOR_PROBLEM, "process 7 runs without the library"},
		{failed_preload, "preload", DOCTOR_PROBLEM, "but has not loaded it"},
		{replaced_library, "preload", DOCTOR_WARNING, "was replaced since"},
		{old_process, "preload", DOCTOR_WARNING, "process 7 has version 0.0.1"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct doctor_facts facts = healthy();
		struct doctor_finding finding;

		cases[i].change(&facts);
		finding = judge(&facts, cases[i].name);
		if (!strstr(finding.found, cases[i].words))
			fail_msg("case %zu: '%s' is not in '%s'", i, cases[i].words, finding.found);
		assert_int_equal(finding.level, cases[i].level);
		assert_true(finding.advice[0]);
	}
}

static void a_file_that_is_no_library_has_no_version(void **state)
{
	char version[32] = "x";

	(void)state;
	doctor_library_version("/proc/self/exe", version, sizeof(version));
	assert_string_equal(version, "");
	doctor_library_version("/nowhere", version, sizeof(version));
	assert_string_equal(version, "");
}

/* As in a stranger's container, whose processes an administrator asks about. */
static void a_file_without_end_is_not_read_to_its_end(void **state)
{
	char path[] = "/tmp/nvshare-doctor-XXXXXX", version[32] = "x";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(ftruncate(fd, (off_t)1 << 42), 0);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	doctor_library_version(path, version, sizeof(version));
	assert_string_equal(version, "");
	(void)close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_healthy_machine_is_ok),
		cmocka_unit_test(a_process_is_judged_only_when_it_is_asked_for),
		cmocka_unit_test(each_fault_is_found_and_says_what_to_do),
		cmocka_unit_test(a_file_that_is_no_library_has_no_version),
		cmocka_unit_test(a_file_without_end_is_not_read_to_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
