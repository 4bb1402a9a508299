/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/msg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum direction { TO_SCHEDULER = 1, TO_CLIENT = 2, TO_TOOL = 4, BOTH = TO_SCHEDULER | TO_CLIENT };

static const struct {
	uint16_t type;
	const char *name;
	size_t size;
	enum direction direction;
} all[] = {
#define NVSHARE_MSG(id, NAME, field, body, direction, during) \
	{id, #NAME, sizeof(struct nvshare_msg_header) + sizeof(struct nvshare_##body), direction},
#include "nvshare/messages.def"
#undef NVSHARE_MSG
};
#define N_ALL   (sizeof(all) / sizeof(all[0]))
#define UNKNOWN ((uint16_t)(N_ALL + 1)) /* numbers have no gap */

static const enum msg_to tos[] = {MSG_TO_SCHEDULER, MSG_TO_CLIENT, MSG_TO_TOOL};

static enum msg_to receiver(size_t i)
{
	if (all[i].direction & TO_SCHEDULER)
		return MSG_TO_SCHEDULER;
	return all[i].direction & TO_CLIENT ? MSG_TO_CLIENT : MSG_TO_TOOL;
}

/* A valid message of all[i]. */
static struct msg sample(size_t i)
{
	struct msg msg;

	memset(&msg, 0xff, sizeof(msg));
	assert_int_equal(msg_encode(all[i].type, 3, NULL, &msg), all[i].size);
	if (all[i].type == NVSHARE_MSG_CONFIG)
		msg.body.config.n_rows = 1; /* there is a row 0 */
	if (all[i].type == NVSHARE_MSG_SUBMIT_GANG) {
		msg.body.submit_gang.gang.size = 2;
		msg.body.submit_gang.gang.name[0] = 'g';
	}
	return msg;
}

/* Decodes; a refusal must leave the result alone. */
static int decode(const struct msg *msg, size_t len, enum msg_to to)
{
	struct msg before;
	struct msg got;
	int r;

	memset(&got, 0xa5, sizeof(got));
	before = got;
	r = msg_decode(msg, len, to, &got);
	if (r)
		assert_memory_equal(&got, &before, sizeof(got));
	else
		assert_memory_equal(&got, msg, len);
	return r;
}

static void numbers_of_the_first_twelve_never_change(void **state)
{
	static const char *const names[] = {"REGISTER",      "SCHED_ON",      "SCHED_OFF",
					    "REQ_LOCK",      "LOCK_OK",       "DROP_LOCK",
					    "LOCK_RELEASED", "SET_TQ",        "MEM_UPDATE",
					    "WAIT_FOR_MEM",  "MEM_AVAILABLE", "PREPARE_SWAP_OUT"};

	(void)state;
	for (uint16_t i = 0; i < 12; i++)
		assert_string_equal(msg_name((uint16_t)(i + 1)), names[i]);
	assert_string_equal(msg_name(0), "?");
	assert_string_equal(msg_name(UNKNOWN), "?");
	assert_string_equal(msg_name(65535), "?");
	assert_int_equal(msg_size(0), 0);
	assert_int_equal(msg_size(UNKNOWN), 0);
	assert_int_equal(msg_size(65535), 0);
}

static void every_type_round_trips_in_its_direction_only(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_ALL; i++) {
		struct msg msg = sample(i);

		assert_int_equal(msg_size(all[i].type), all[i].size);
		assert_string_equal(msg_name(all[i].type), all[i].name);
		for (size_t t = 0; t < 3; t++) {
			bool is_good = all[i].direction & (1 << t);

			print_message("%s to %zu\n", all[i].name, t);
			assert_int_equal(decode(&msg, all[i].size, tos[t]),
					 is_good ? 0 : MSG_E_TYPE);
		}
	}
}

static void what_lies_behind_the_packet_is_zeroed(void **state)
{
	struct msg msg = sample(0);
	struct msg got;
	const uint8_t *bytes = (const uint8_t *)&got;

	(void)state;
	memset(&got, 0xff, sizeof(got));
	assert_int_equal(msg_decode(&msg, all[0].size, MSG_TO_SCHEDULER, &got), 0);
	for (size_t i = all[0].size; i < sizeof(got); i++)
		assert_int_equal(bytes[i], 0);
}

static void every_other_length_is_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_ALL; i++) {
		struct msg msg = sample(i);

		for (size_t len = 0; len <= sizeof(msg); len++) {
			int expected = len < sizeof(msg.header) ? MSG_E_SHORT : MSG_E_SIZE;

			if (len != all[i].size)
				assert_int_equal(decode(&msg, len, receiver(i)), expected);
		}
		msg.header.size--;
		assert_int_equal(decode(&msg, all[i].size, receiver(i)), MSG_E_SIZE);
		msg.header.size = UINT32_MAX;
		assert_int_equal(decode(&msg, all[i].size, receiver(i)), MSG_E_SIZE);
	}
}

static void a_wrong_header_is_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_ALL; i++) {
		struct msg msg = sample(i);

		msg.header.magic ^= 1;
		assert_int_equal(decode(&msg, all[i].size, receiver(i)), MSG_E_MAGIC);
		msg = sample(i);
		msg.header.version++;
		assert_int_equal(decode(&msg, all[i].size, receiver(i)), MSG_E_VERSION);
		msg = sample(i);
		msg.header.type = 0;
		assert_int_equal(decode(&msg, all[i].size, receiver(i)), MSG_E_TYPE);
		msg.header.type = UNKNOWN;
		assert_int_equal(decode(&msg, all[i].size, receiver(i)), MSG_E_TYPE);
		msg.header.type = 65535;
		assert_int_equal(decode(&msg, all[i].size, receiver(i)), MSG_E_TYPE);
	}
}

/* Where the strings of the wire are: type, offset in the packet, length. */
#define STRING(TYPE, body, field)                                       \
	{                                                               \
		NVSHARE_MSG_##TYPE,                                     \
			sizeof(struct nvshare_msg_header) +             \
				offsetof(struct nvshare_##body, field), \
			sizeof(((struct nvshare_##body *)0)->field)     \
	}

static void a_string_without_its_end_is_refused(void **state)
{
	static const struct {
		uint16_t type;
		size_t offset;
		size_t len;
	} strings[] = {
		STRING(REGISTER, register, name),
		STRING(REGISTER, register, pod),
		STRING(STATUS_NODE, status_node, version),
		STRING(STATUS_GPU, status_gpu, name),
		STRING(STATUS_OUTSIDER, status_outsider, name),
		STRING(STATUS_CLIENT, status_client, name),
		STRING(STATUS_CLIENT, status_client, pod),
		STRING(RESULT, result_msg, text),
		STRING(SET_TEXT, set_text, name),
		STRING(SET_TEXT, set_text, value),
		STRING(CONFIG, config, name),
		STRING(CONFIG, config, value),
		STRING(CONFIG, config, origin),
		STRING(SUBMIT, submit, name),
		STRING(SUBMIT, submit, model),
		STRING(SUBMIT, submit, type),
		STRING(SUBMIT, submit, apart),
		STRING(SUBMIT, submit, gpus),
		STRING(PLACE, submit, gpus),
		STRING(SUBMIT_GANG, submit_gang, submit.gpus),
		STRING(SUBMIT_GANG, submit_gang, gang.name),
		STRING(JOB, job, gpu_uuid),
		STRING(JOB, job, name),
		STRING(JOB, job, model),
		STRING(JOB, job, type),
		STRING(JOB, job, text),
		STRING(JOB_GANG, job_gang, name),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
		size_t at = strings[i].type - 1u;
		struct msg msg = sample(at);

		assert_int_equal(all[at].type, strings[i].type);
		memset((char *)&msg + strings[i].offset, 'x', strings[i].len);
		assert_int_equal(decode(&msg, all[at].size, receiver(at)), MSG_E_STRING);
		((char *)&msg)[strings[i].offset + strings[i].len - 1] = '\0';
		assert_int_equal(decode(&msg, all[at].size, receiver(at)), 0);
	}
}

/* The largest value allowed at a field, and that one more is refused. */
#define RANGE(TYPE, body, field, max)                                    \
	{                                                                \
		NVSHARE_MSG_##TYPE,                                      \
			sizeof(struct nvshare_msg_header) +              \
				offsetof(struct nvshare_##body, field),  \
			sizeof(((struct nvshare_##body *)0)->field), max \
	}

static void a_value_out_of_its_range_is_refused(void **state)
{
	static const struct {
		uint16_t type;
		size_t offset;
		size_t size;
		uint64_t max;
	} ranges[] = {
		RANGE(REGISTER, register, flags, 15),
		RANGE(REGISTER, register, backend, NVSHARE_BACKEND_MANAGED),
		RANGE(REGISTER, register, gpu_total_bytes, 1ull << 48),
		RANGE(REGISTER, register, mem.resident, 1ull << 48),
		RANGE(REQ_LOCK, req_lock, mem.allocated, 1ull << 48),
		RANGE(REQ_LOCK, req_lock, mem.wanted_pinned, 1ull << 48),
		RANGE(REQ_LOCK, req_lock, mem.pinned[7], 1ull << 48),
		RANGE(LOCK_RELEASED, lock_released, outcome, NVSHARE_OUTCOME_COUNT - 1),
		RANGE(LOCK_RELEASED, lock_released, wants, 1),
		RANGE(LOCK_RELEASED, lock_released, halt, NVSHARE_HALT_COUNT - 1),
		RANGE(MEM_UPDATE, mem_update, halt, NVSHARE_HALT_COUNT - 1),
		RANGE(STATUS_CLIENT, status_client, halt, NVSHARE_HALT_COUNT - 1),
		RANGE(LOCK_RELEASED, lock_released, mem.swapped, 1ull << 48),
		RANGE(LOCK_RELEASED, lock_released, moved, 1ull << 48),
		RANGE(MEM_UPDATE, mem_update, moved, 1ull << 48),
		RANGE(MEM_UPDATE, mem_update, mem.wanted, 1ull << 48),
		RANGE(WAIT_FOR_MEM, wait_for_mem, why, NVSHARE_WAIT_COUNT - 1),
		RANGE(REGISTERED, registered, result, NVSHARE_REGISTER_VERSION),
		RANGE(STATUS_NODE, status_node, mode, NVSHARE_MODE_COUNT - 1),
		RANGE(STATUS_NODE, status_node, switch_mode, NVSHARE_SWITCH_COUNT - 1),
		RANGE(STATUS_GPU, status_gpu, mode, NVSHARE_MODE_COUNT - 1),
		RANGE(STATUS_GPU, status_gpu, switch_mode, NVSHARE_SWITCH_COUNT - 1),
		RANGE(STATUS_CLIENT, status_client, state, NVSHARE_CLIENT_STATE_COUNT - 1),
		RANGE(STATUS_CLIENT, status_client, why, NVSHARE_WAIT_COUNT - 1),
		RANGE(STATUS_CLIENT, status_client, backend, NVSHARE_BACKEND_MANAGED),
		RANGE(STATUS_CLIENT, status_client, last_outcome, NVSHARE_OUTCOME_COUNT - 1),
		RANGE(SET, set, key, NVSHARE_KEY_COUNT - 1),
		RANGE(RESULT, result_msg, code, NVSHARE_RESULT_COUNT - 1),
		RANGE(REGISTER, register, claim.priority, NVSHARE_PRIORITY_COUNT - 1),
		RANGE(REGISTER, register, claim.weight, NVSHARE_WEIGHT_MAX),
		RANGE(REGISTER, register, claim.slo_us, NVSHARE_SLO_US_MAX),
		RANGE(REGISTER, register, claim.compute_limit, 100),
		RANGE(REGISTERED, registered, claim.priority, NVSHARE_PRIORITY_COUNT - 1),
		RANGE(STATUS_NODE, status_node, policy, NVSHARE_POLICY_COUNT - 1),
		RANGE(STATUS_CLIENT, status_client, claim.weight, NVSHARE_WEIGHT_MAX),
		RANGE(STATUS_CLIENT, status_client, learned[2].prefers,
		      NVSHARE_PREFERENCE_COUNT - 1),
		RANGE(ACTIVITY, activity, kind, NVSHARE_ACTIVITY_COUNT - 1),
		RANGE(ACTIVITY, activity, n_violations, 0), /* of no requests */
		RANGE(GPU_STATE, gpu_state, state, NVSHARE_STATE_COUNT - 1),
		RANGE(STATUS_STATE, status_state, known, NVSHARE_STATE_KNOWS_ALL),
		RANGE(STATUS_STATE, status_state, is_mig, 1),
		RANGE(STATUS_WAIT, status_wait, obstacle, NVSHARE_OBSTACLE_COUNT - 1),
		RANGE(STATUS_WAIT, status_wait, kind, NVSHARE_PINNED_COUNT - 1),
		RANGE(SET_SHARE, set_share, use_ppm, 1000000),
		RANGE(SET_SHARE, set_share, claim.compute_limit, 100),
		RANGE(SHARE_SET, share_set, outcome, NVSHARE_OUTCOME_COUNT - 1),
		RANGE(SHARE_SET, share_set, is_held, 1),
		RANGE(SET_TEXT, set_text, flags, NVSHARE_SET_SAVE),
		RANGE(CONFIG, config, row, 0), /* of one */
		RANGE(CONFIG, config, is_fixed, 1),
		RANGE(CONFIG, config, value_len, NVSHARE_VALUE_ALL_MAX - 1),
		RANGE(SUBMIT, submit, memory, 1ull << 48),
		RANGE(SUBMIT, submit, units, NVSHARE_JOB_UNITS_MAX),
		RANGE(SUBMIT, submit, flags, 7),
		RANGE(SUBMIT, submit, priority, NVSHARE_PRIORITY_COUNT - 1),
		RANGE(SUBMIT, submit, limit_sec, NVSHARE_JOB_NO_LIMIT),
		RANGE(PLACE, submit, flags, 7),
		RANGE(SUBMIT_GANG, submit_gang, submit.flags, 7),
		RANGE(SUBMIT_GANG, submit_gang, gang.size, NVSHARE_GANG_SIZE_MAX),
		RANGE(JOB_ENDED, job_ended, exit_code, 255),
		RANGE(JOB_ENDED, job_ended, signal, 64),
		RANGE(JOB_ENDED, job_ended, flags, 3),
		RANGE(SUBMIT, submit, n_retries, NVSHARE_JOB_RETRIES_MAX),
		RANGE(GET_JOBS, get_jobs, flags, 7),
		RANGE(JOB_GANG, job_gang, size, NVSHARE_GANG_SIZE_MAX),
		RANGE(JOB, job, state, NVSHARE_JOB_STATE_COUNT - 1),
		RANGE(JOB, job, why, NVSHARE_JOB_WHY_COUNT - 1),
		RANGE(JOB, job, priority, NVSHARE_PRIORITY_COUNT - 1),
		RANGE(JOB, job, flags, NVSHARE_JOB_FLAGS_ALL),
		RANGE(JOB, job, end, NVSHARE_JOB_END_COUNT - 1),
		RANGE(JOB, job, signal_now, 64),
		RANGE(JOB, job, exit_code, 255),
		RANGE(JOB, job, signal, 64),
		RANGE(ORION, orion, wait_us, UINT64_MAX / 1000),
		RANGE(ORION, orion, n_clients, 64),
		RANGE(ORION, orion, n_waiting, 0), /* of no clients */
		RANGE(STATUS_ORION, status_orion, orion.n_clients, 64),
		RANGE(STATUS_ORION, status_orion, orion.n_waiting, 0),
		RANGE(PLACEMENT, placement, n, NVSHARE_PLACEMENT_GPUS),
		RANGE(PLACEMENT, placement, is_estimated, 1),
		RANGE(PLACEMENT, placement, gpus[0].verdict, NVSHARE_VERDICT_COUNT - 1),
		RANGE(PLACEMENT, placement, gpus[15].verdict, NVSHARE_VERDICT_COUNT - 1),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		size_t at = ranges[i].type - 1u;
		struct msg msg = sample(at);
		uint64_t value = ranges[i].max;

		print_message("%s at %zu\n", all[at].name, ranges[i].offset);
		memcpy((char *)&msg + ranges[i].offset, &value, ranges[i].size);
		assert_int_equal(decode(&msg, all[at].size, receiver(at)), 0);
		value++;
		memcpy((char *)&msg + ranges[i].offset, &value, ranges[i].size);
		assert_int_equal(decode(&msg, all[at].size, receiver(at)), MSG_E_RANGE);
		value = UINT64_MAX;
		memcpy((char *)&msg + ranges[i].offset, &value, ranges[i].size);
		assert_int_equal(decode(&msg, all[at].size, receiver(at)), MSG_E_RANGE);
	}
}

static void sizes_that_overflow_together_are_refused(void **state)
{
	struct msg msg = sample(NVSHARE_MSG_REQ_LOCK - 1);

	(void)state;
	msg.body.req_lock.mem.resident = 1ull << 47;
	msg.body.req_lock.mem.pinned[0] = 1ull << 47;
	assert_int_equal(decode(&msg, msg.header.size, MSG_TO_SCHEDULER), 0);
	msg.body.req_lock.mem.swapped = 1;
	assert_int_equal(decode(&msg, msg.header.size, MSG_TO_SCHEDULER), MSG_E_RANGE);
}

static void bytes_need_no_alignment(void **state)
{
	struct msg msg = sample(0);
	uint8_t bytes[sizeof(msg) + 1];
	struct msg got;

	(void)state;
	memcpy(bytes + 1, &msg, all[0].size);
	assert_int_equal(msg_decode(bytes + 1, all[0].size, MSG_TO_SCHEDULER, &got), 0);
}

static void every_error_has_a_phrase(void **state)
{
	(void)state;
	for (int e = MSG_E_SUCCESS_; e <= MSG_E_RANGE; e++)
		assert_true(strlen(msg_error(e)) > 3);
	assert_string_equal(msg_error(-1), "?");
	assert_string_equal(msg_error(MSG_E_RANGE + 1), "?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_of_the_first_twelve_never_change),
		cmocka_unit_test(every_type_round_trips_in_its_direction_only),
		cmocka_unit_test(what_lies_behind_the_packet_is_zeroed),
		cmocka_unit_test(every_other_length_is_refused),
		cmocka_unit_test(a_wrong_header_is_refused),
		cmocka_unit_test(a_string_without_its_end_is_refused),
		cmocka_unit_test(a_value_out_of_its_range_is_refused),
		cmocka_unit_test(sizes_that_overflow_together_are_refused),
		cmocka_unit_test(bytes_need_no_alignment),
		cmocka_unit_test(every_error_has_a_phrase),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
