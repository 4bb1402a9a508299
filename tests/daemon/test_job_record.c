/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job_record.h"

#include "daemon/peers/pods.h"
#include "daemon/peers/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define N_MAX 512

/* A journal in memory. */
struct file {
	uint8_t bytes[N_MAX * JOB_RECORD_SIZE_MAX];
	size_t len;
};

static void add(struct file *file, const struct job_record *record)
{
	file->len += job_record_write(record, file->bytes + file->len);
}

static struct job_record open_record(void)
{
	return (struct job_record){
		.kind = JOB_RECORD_OPEN,
		.open = {.version = JOB_RECORD_VERSION, .last_id = 3, .boot = "boot"},
	};
}

static struct job_record submit(uint64_t id)
{
	return (struct job_record){
		.kind = JOB_RECORD_SUBMIT,
		.place = {.id = id, .pid = 100, .ticks = id, .memory = 1 << 20},
	};
}

static struct job_record submit_gang(uint64_t id)
{
	struct job_record record = {.kind = JOB_RECORD_SUBMIT_GANG,
				    .member = {.gang = {.size = 2}}};

	record.member.place = submit(id).place;
	record.member.gang.name[0] = 'g';
	return record;
}

static struct job_record number(enum job_record_kind kind, uint64_t id, uint64_t ns)
{
	return (struct job_record){.kind = kind, .number = {.id = id, .ns = ns}};
}

static struct job_record start(uint64_t id, const char *gpu)
{
	struct job_record record = {.kind = JOB_RECORD_START, .start = {.id = id}};

	(void)strcpy(record.start.gpu, gpu);
	return record;
}

static void add_all(struct file *file, const struct job_record *records, size_t n)
{
	file->len = 0;
	for (size_t i = 0; i < n; i++)
		add(file, &records[i]);
}

static struct job_record ended_record(uint32_t id, uint32_t exit_code)
{
	return (struct job_record){
		.kind = JOB_RECORD_ENDED,
		.ended = {.job = {.job = id,
				  .state = NVSHARE_JOB_DONE,
				  .end = NVSHARE_JOB_END_EXIT,
				  .exit_code = exit_code},
			  .gang = {.job = id, .size = 2, .name = "g"}},
	};
}

static void every_record_round_trips(void **state)
{
	const struct job_record records[] = {
		open_record(),
		submit(4),
		submit_gang(5),
		start(4, "GPU-1"),
		number(JOB_RECORD_COUNTED, 4, 7),
		number(JOB_RECORD_CANCEL, 4, 0),
		number(JOB_RECORD_END, 4, 0),
		{.kind = JOB_RECORD_TIME, .time = {4, 1, 2, 1}},
		ended_record(4, 5),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
		uint8_t bytes[JOB_RECORD_SIZE_MAX], again[JOB_RECORD_SIZE_MAX];
		size_t at = 0, size = job_record_write(&records[i], bytes);
		struct job_record got;

		assert_int_equal(size % 8, 0);
		assert_int_equal(job_record_read(bytes, size, &at, &got), 0);
		assert_int_equal(at, size);
		assert_int_equal(job_record_write(&got, again), size);
		assert_memory_equal(bytes, again, size);
		assert_int_equal(job_record_read(bytes, size, &at, &got), JOB_RECORD_E_END);
	}
}

static void every_flipped_bit_is_seen(void **state)
{
	const struct job_record record = submit(4);
	uint8_t bytes[JOB_RECORD_SIZE_MAX];
	size_t size = job_record_write(&record, bytes);

	(void)state;
	for (size_t bit = 0; bit < 8 * size; bit++) {
		struct job_record got;
		size_t at = 0;

		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(job_record_read(bytes, size, &at, &got), JOB_RECORD_E_BAD);
		assert_int_equal(at, 0);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void a_value_that_no_scheduler_writes_is_refused(void **state)
{
	struct job_record bad[] = {submit(0),          submit(4),          submit(4),
				   submit(4),          submit(4),          open_record(),
				   submit_gang(4),     submit_gang(4),     submit_gang(0),
				   ended_record(0, 0), ended_record(4, 0), ended_record(4, 0)};

	(void)state;
	bad[1].place.pid = 0;
	bad[2].place.memory = 0;
	bad[3].place.submit.priority = NVSHARE_PRIORITY_COUNT;
	memset(bad[4].place.submit.gpus, 'x', sizeof(bad[4].place.submit.gpus));
	bad[5].open.version++;
	bad[6].member.gang.size = 1;
	memset(bad[7].member.gang.name, 'x', sizeof(bad[7].member.gang.name));
	bad[10].ended.job.state = NVSHARE_JOB_RUNNING;
	memset(bad[11].ended.job.name, 'x', sizeof(bad[11].ended.job.name));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint8_t bytes[JOB_RECORD_SIZE_MAX];
		size_t at = 0, size = job_record_write(&bad[i], bytes);
		struct job_record got;

		assert_int_equal(job_record_read(bytes, size, &at, &got), JOB_RECORD_E_BAD);
	}
}

static void what_has_not_ended_is_there_again(void **state)
{
	struct job_record retry = submit(6);
	struct job_replay replay = {.n = 0};
	static struct file file;
	size_t good;

	(void)state;
	retry.kind = JOB_RECORD_RETRY;
	retry.place.n_retries = 2;
	add_all(&file,
		(struct job_record[]){
			open_record(), submit(4), submit(5), start(4, "GPU-1"), submit(6),
			start(6, "GPU-2"), number(JOB_RECORD_COUNTED, 4, 7),
			number(JOB_RECORD_END, 5, 0), number(JOB_RECORD_COUNTED, 6, 9), retry,
			submit(9), number(JOB_RECORD_CANCEL, 4, 0)},
		12);
	assert_int_equal(job_replay(&replay, file.bytes, file.len, &good), 0);
	assert_int_equal(good, file.len);
	assert_int_equal(replay.open.last_id, 9);
	assert_string_equal(replay.open.boot, "boot");
	assert_int_equal(replay.n, 3);
	assert_int_equal(replay.jobs[0].place.id, 4);
	assert_true(replay.jobs[0].is_started && replay.jobs[0].is_cancelled);
	assert_string_equal(replay.jobs[0].gpu, "GPU-1");
	assert_int_equal(replay.jobs[0].time.counted_ns, 7);
	assert_int_equal(replay.jobs[1].place.id, 6);
	assert_false(replay.jobs[1].is_started); /* it waits again, with nothing used up */
	assert_int_equal(replay.jobs[1].time.counted_ns, 0);
	assert_int_equal(replay.jobs[1].place.n_retries, 2);
	assert_int_equal(replay.jobs[2].place.id, 9);
	job_replay_deinit(&replay);
}

static struct job_record time_record(uint64_t id, uint64_t counted_ns, uint64_t at_ns,
				     bool is_counting)
{
	return (struct job_record){.kind = JOB_RECORD_TIME,
				   .time = {id, counted_ns, at_ns, is_counting}};
}

static void used_time_goes_on_without_a_scheduler(void **state)
{
	struct job_replay replay = {.n = 0};
	static struct file file;
	size_t good;

	(void)state;
	add_all(&file,
		(struct job_record[]){open_record(), submit(4), submit(5), submit(6),
				      start(4, "GPU-1"), time_record(4, 0, 100, true),
				      start(5, "GPU-1"), time_record(5, 0, 100, true),
				      time_record(5, 50, 150, false), start(6, "GPU-1"),
				      number(JOB_RECORD_COUNTED, 6, 70)},
		11);
	assert_int_equal(job_replay(&replay, file.bytes, file.len, &good), 0);
	assert_int_equal(job_replay_counted_ns(&replay.jobs[0], 1100), 1000);
	assert_int_equal(job_replay_counted_ns(&replay.jobs[0], 90), 0);
	assert_int_equal(job_replay_counted_ns(&replay.jobs[1], 1100), 50);
	assert_int_equal(job_replay_counted_ns(&replay.jobs[2], 1100), 70);
	replay.jobs[0].time.counted_ns = UINT64_MAX;
	assert_int_equal(job_replay_counted_ns(&replay.jobs[0], 1100), UINT64_MAX);
	job_replay_deinit(&replay);
}

static void the_last_jobs_that_ended_are_there_again(void **state)
{
	static struct file file;
	struct job_replay replay = {.n = 0};
	struct job_record record = open_record();
	size_t good;

	(void)state;
	add_all(&file, (struct job_record[]){record, submit(4), submit(5), ended_record(5, 7)}, 4);
	assert_int_equal(job_replay(&replay, file.bytes, file.len, &good), 0);
	assert_int_equal(replay.n, 1);
	assert_int_equal(replay.n_ended, 1);
	assert_int_equal(replay.ended[0].job.job, 5);
	assert_int_equal(replay.ended[0].job.exit_code, 7);
	assert_string_equal(replay.ended[0].gang.name, "g");
	job_replay_deinit(&replay);
	/* A file that was written anew has them without their submissions. */
	add_all(&file, &record, 1);
	for (uint32_t i = 0; i < JOB_RECORD_ENDED_MAX + 3; i++) {
		record = ended_record(i + 10, 0);
		add(&file, &record);
	}
	assert_int_equal(job_replay(&replay, file.bytes, file.len, &good), 0);
	assert_int_equal(replay.n, 0);
	assert_int_equal(replay.n_ended, JOB_RECORD_ENDED_MAX + 3);
	assert_int_equal(replay.ended[2].job.job, JOB_RECORD_ENDED_MAX + 12);
	assert_int_equal(replay.ended[3].job.job, 13);
	assert_int_equal(replay.open.last_id, JOB_RECORD_ENDED_MAX + 12);
	job_replay_deinit(&replay);
}

static void a_gang_is_kept_over_a_retry(void **state)
{
	struct job_record retry = {.kind = JOB_RECORD_RETRY, .place = submit(4).place};
	struct job_replay replay = {.n = 0};
	static struct file file;
	size_t good;

	(void)state;
	add_all(&file,
		(struct job_record[]){open_record(), submit_gang(4), submit(5), submit_gang(6),
				      start(4, "GPU-1"), retry},
		6);
	assert_int_equal(job_replay(&replay, file.bytes, file.len, &good), 0);
	assert_int_equal(replay.n, 3);
	assert_int_equal(replay.jobs[0].gang.size, 2);
	assert_string_equal(replay.jobs[0].gang.name, "g");
	assert_false(replay.jobs[0].is_started);
	assert_true(replay.jobs[0].was_started && !replay.jobs[1].was_started);
	assert_int_equal(replay.jobs[1].gang.size, 0);
	assert_int_equal(replay.jobs[2].gang.size, 2);
	job_replay_deinit(&replay);
}

/* Wherever the last write was cut off, what came before it counts. */
static void a_file_that_was_cut_off_keeps_what_is_whole(void **state)
{
	static struct file file;
	size_t whole;

	(void)state;
	add_all(&file, (struct job_record[]){open_record(), submit(4)}, 2);
	whole = file.len;
	add(&file, &(struct job_record){.kind = JOB_RECORD_END, .number = {.id = 4}});
	for (size_t len = whole; len < file.len; len++) {
		struct job_replay replay = {.n = 0};
		size_t good;
		int r = job_replay(&replay, file.bytes, len, &good);

		assert_int_equal(r, len == whole ? 0 : JOB_RECORD_E_BAD);
		assert_int_equal(good, whole);
		assert_int_equal(replay.n, 1);
		job_replay_deinit(&replay);
	}
}

/* Nobody's place gets earlier by a record that does not belong there. */
static void records_out_of_order_end_the_file(void **state)
{
	static struct file file;
	const struct job_record odd[] = {
		open_record(),     submit(4), submit(3), number(JOB_RECORD_END, 7, 0),
		start(7, "GPU-1"),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		struct job_replay replay = {.n = 0};
		size_t good;

		add_all(&file, (struct job_record[]){open_record(), submit(4), odd[i], submit(8)},
			4);
		assert_int_equal(job_replay(&replay, file.bytes, file.len, &good),
				 JOB_RECORD_E_BAD);
		assert_int_equal(replay.n, 1);
		job_replay_deinit(&replay);
	}
	/* Without a head nothing counts. */
	add_all(&file, (struct job_record[]){submit(4)}, 1);
	{
		struct job_replay replay = {.n = 0};
		size_t good;

		assert_int_equal(job_replay(&replay, file.bytes, file.len, &good),
				 JOB_RECORD_E_BAD);
		assert_int_equal(good + replay.n, 0);
		job_replay_deinit(&replay);
	}
}

static void proc_stat_is_read_whatever_the_name(void **state)
{
	static const char tail[] = " S 41 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
	static const char *const names[] = {"42 (sh)", "42 (a b)", "42 (a) S 1 1)", "42 ())"};
	char text[128];
	uint64_t ticks;
	pid_t parent;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		(void)strcat(strcpy(text, names[i]), tail);
		assert_int_equal(job_process_parse(text, &parent, &ticks), 0);
		assert_int_equal(parent, 41);
		assert_int_equal(ticks, 777);
	}
	assert_int_not_equal(job_process_parse("", &parent, &ticks), 0);
	assert_int_not_equal(job_process_parse("42 (sh) S 41 2", &parent, &ticks), 0);
	assert_int_not_equal(job_process_parse("42 sh S 41", &parent, &ticks), 0);
}

static void namespaces_from_before_a_restart_are_told_apart(void **state)
{
	const uint32_t first = PODS_OWNER_FIRST, last = first + PODS_OWNERS_MAX;

	(void)state;
	assert_int_equal(job_record_owner_before(1000), 1000);
	assert_int_equal(job_record_owner_before(QUOTA_NOBODY), QUOTA_NOBODY);
	assert_int_not_equal(job_record_owner_before(first), job_record_owner_before(first + 1));
	/* None is a number that is given now, or was before the last restart. */
	assert_true(job_record_owner_before(first) > last);
	assert_true(job_record_owner_before(job_record_owner_before(first)) >
		    job_record_owner_before(last));
	assert_int_equal(job_record_owner_before(QUOTA_NOBODY - 1), QUOTA_NOBODY - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_record_round_trips),
		cmocka_unit_test(every_flipped_bit_is_seen),
		cmocka_unit_test(a_value_that_no_scheduler_writes_is_refused),
		cmocka_unit_test(what_has_not_ended_is_there_again),
		cmocka_unit_test(used_time_goes_on_without_a_scheduler),
		cmocka_unit_test(the_last_jobs_that_ended_are_there_again),
		cmocka_unit_test(a_gang_is_kept_over_a_retry),
		cmocka_unit_test(a_file_that_was_cut_off_keeps_what_is_whole),
		cmocka_unit_test(records_out_of_order_end_the_file),
		cmocka_unit_test(namespaces_from_before_a_restart_are_told_apart),
		cmocka_unit_test(proc_stat_is_read_whatever_the_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
