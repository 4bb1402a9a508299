/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The client's side: every event in every state, as a table of what is done and where
 * it leads. Actions are letters, in order:
 *   q REQ  r RELEASED  m MEMORY  b SET_BUDGET  f REFUSE  o OPEN  c CLOSE
 *   d DRAIN  e EVICT  i RESTORE (in)  p PREPARE  t ORPHAN_TIMER
 */

#include "core/client/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char letters[] = {
	[LEASE_ACTION_SEND_REQ] = 'q',     [LEASE_ACTION_SEND_RELEASED] = 'r',
	[LEASE_ACTION_SEND_MEMORY] = 'm',  [LEASE_ACTION_SET_BUDGET] = 'b',
	[LEASE_ACTION_REFUSE] = 'f',       [LEASE_ACTION_OPEN] = 'o',
	[LEASE_ACTION_DRAIN] = 'd',        [LEASE_ACTION_EVICT] = 'e',
	[LEASE_ACTION_RESTORE] = 'i',      [LEASE_ACTION_PREPARE] = 'p',
	[LEASE_ACTION_ORPHAN_TIMER] = 't', [LEASE_ACTION_CLOSE] = 'c',
};

static struct lease lease;
static struct lease_actions did;

/* Returns the letters of what was done. */
static const char *step(struct lease_event event)
{
	static char text[LEASE_ACTIONS_MAX + 1];
	int r = lease_step(&lease, &event, &did);

	lease_assert_valid(&lease);
	if (r) {
		assert_int_equal(did.n, 0);
		assert_int_equal(r, event.is_out && lease.state == LEASE_ASKED ? LEASE_E_OUT
									       : LEASE_E_STATE);
		return "-";
	}
	for (uint32_t i = 0; i < did.n; i++)
		text[i] = letters[did.at[i].type];
	text[did.n] = '\0';
	return text;
}

static const char *go(enum lease_event_type type)
{
	return step((struct lease_event){.type = type});
}

static const struct lease_action *last(void)
{
	assert_true(did.n > 0);
	return &did.at[did.n - 1];
}

/* Every state that there is, with what tells states of one name apart. */
enum from {
	OFF,
	IDLE,
	ASKED,
	COMING,  /* RESTORING for a budget */
	USED_UP, /* the same, and has told that it is used up */
	HOLDING,
	UNNUMBERED, /* HOLDING, its LOCK_OK still on the way */
	DRAINING,   /* for a DROP of 10 bytes */
	DRAINING0,  /* for a DROP of 0 bytes */
	GIVING_UP,  /* DRAINING, idle */
	EVICTING,
	EVICTED_PART, /* EVICTING, and has reported so */
	UNDOING,      /* RESTORING after an eviction that failed */
	FREEING,      /* EVICTING with grant 0, from ASKED */
	FREEING_I,    /* the same, from IDLE */
	ORPHAN,
	ALONE, /* RESTORING by itself */
	LOST_DRAIN,
	LOST_EVICT,
	LOST_PART,
	LOST_COMING,
	LOST_USED_UP,
	LOST_UNDO,
	FROM_COUNT
};

static void hold(void)
{
	assert_string_equal(
		step((struct lease_event){
			.type = LEASE_EVENT_LOCK_OK, .grant = 7, .budget = 100, .epoch = 2}),
		"bo");
}

static void drop(uint64_t grant, uint64_t bytes, const char *expected)
{
	assert_string_equal(step((struct lease_event){.type = LEASE_EVENT_DROP,
						      .grant = grant,
						      .bytes = bytes,
						      .epoch = grant ? 4 : 3}),
			    expected);
}

static void bring_into(enum from from)
{
	lease_init(&lease);
	lease_assert_valid(&lease);
	if (from == OFF)
		return;
	if (from == UNNUMBERED) {
		assert_string_equal(
			step((struct lease_event){.type = LEASE_EVENT_REGISTERED, .running = true}),
			"");
		return;
	}
	assert_string_equal(go(LEASE_EVENT_REGISTERED), "cb");
	if (from == ORPHAN || from == ALONE) {
		assert_string_equal(go(LEASE_EVENT_LOST), "t");
		if (from == ALONE)
			assert_string_equal(go(LEASE_EVENT_ORPHAN_TIME), "bi");
		return;
	}
	if (from == FREEING_I)
		drop(0, 10, "be");
	if (from == IDLE || from == FREEING_I)
		return;
	assert_string_equal(go(LEASE_EVENT_WANT), "q");
	if (from == FREEING)
		drop(0, 10, "be");
	if (from == COMING || from == USED_UP || from == LOST_COMING || from == LOST_USED_UP)
		assert_string_equal(step((struct lease_event){
					    .type = LEASE_EVENT_BUDGET, .budget = 50, .epoch = 1}),
				    "bi");
	if (from == USED_UP || from == LOST_USED_UP)
		assert_string_equal(
			step((struct lease_event){.type = LEASE_EVENT_PART, .outcome = 7}), "br");
	if (from == ASKED || from == COMING || from == USED_UP || from == FREEING)
		return;
	if (from != LOST_COMING && from != LOST_USED_UP)
		hold();
	if (from == DRAINING || from == DRAINING0 || from == EVICTING || from == UNDOING ||
	    from == EVICTED_PART || from == LOST_DRAIN || from == LOST_EVICT || from == LOST_PART ||
	    from == LOST_UNDO)
		drop(7, from == DRAINING0 ? 0 : 10, "d");
	if (from == GIVING_UP)
		assert_string_equal(go(LEASE_EVENT_IDLE), "d");
	if (from == EVICTING || from == EVICTED_PART || from == UNDOING || from == LOST_EVICT ||
	    from == LOST_PART || from == LOST_UNDO)
		assert_string_equal(go(LEASE_EVENT_DRAINED), "e");
	if (from == EVICTED_PART || from == LOST_PART)
		assert_string_equal(go(LEASE_EVENT_PROGRESS), "bm");
	if (from == UNDOING || from == LOST_UNDO)
		assert_string_equal(
			step((struct lease_event){.type = LEASE_EVENT_EVICTED, .outcome = 3}), "i");
	if (from >= LOST_DRAIN)
		assert_string_equal(go(LEASE_EVENT_LOST), "");
}

/* The events of the table; some types come in several kinds. */
enum kind {
	REGISTERED,
	REGISTERED_WANTING,
	REGISTERED_RUNNING,
	LOST,
	WANT,
	LOCK_OK,
	LOCK_OK_OUT, /* and bytes are out */
	DROP_OURS,
	DROP_OLD,
	DROP_0,
	BUDGET_ODD,
	BUDGET_EVEN,
	REFUSED,
	PREPARE,
	FORESEEN, /* PREPARE, and nobody waits yet */
	PROGRESS,
	PART,
	DONE,
	DONE_WANTING,
	FAILED,
	IDLE_TIME,
	ORPHAN_TIME,
	KIND_COUNT
};

static struct lease_event event_of(enum kind kind)
{
	/* The end of the work under way; with none under way, that of a drain. */
	enum lease_event_type end = lease.state == LEASE_EVICTING    ? LEASE_EVENT_EVICTED
				    : lease.state == LEASE_RESTORING ? LEASE_EVENT_RESTORED
								     : LEASE_EVENT_DRAINED;
	const struct lease_event events[] = {
		[REGISTERED] = {.type = LEASE_EVENT_REGISTERED},
		[REGISTERED_WANTING] = {.type = LEASE_EVENT_REGISTERED, .wanting = true},
		[REGISTERED_RUNNING] = {.type = LEASE_EVENT_REGISTERED, .running = true},
		[LOST] = {.type = LEASE_EVENT_LOST},
		[WANT] = {.type = LEASE_EVENT_WANT, .wanting = true},
		[LOCK_OK] = {.type = LEASE_EVENT_LOCK_OK, .grant = 8, .budget = 5, .epoch = 6},
		[LOCK_OK_OUT] = {.type = LEASE_EVENT_LOCK_OK,
				 .grant = 8,
				 .budget = 5,
				 .epoch = 6,
				 .is_out = true},
		[DROP_OURS] = {.type = LEASE_EVENT_DROP, .grant = 7, .bytes = 1, .epoch = 6},
		[DROP_OLD] = {.type = LEASE_EVENT_DROP, .grant = 6, .bytes = 1, .epoch = 6},
		[DROP_0] = {.type = LEASE_EVENT_DROP, .bytes = 1, .epoch = 5},
		[BUDGET_ODD] = {.type = LEASE_EVENT_BUDGET, .budget = 5, .epoch = 5},
		[BUDGET_EVEN] = {.type = LEASE_EVENT_BUDGET, .budget = 5, .epoch = 6},
		[REFUSED] = {.type = LEASE_EVENT_REFUSED},
		[PREPARE] = {.type = LEASE_EVENT_PREPARE, .bytes = 1, .due_ms = 1},
		[FORESEEN] = {.type = LEASE_EVENT_PREPARE, .bytes = 1},
		[PROGRESS] = {.type = LEASE_EVENT_PROGRESS},
		[PART] = {.type = LEASE_EVENT_PART, .outcome = 7},
		[DONE] = {.type = end},
		[DONE_WANTING] = {.type = end, .wanting = true},
		[FAILED] = {.type = end, .outcome = 2, .wanting = true},
		[IDLE_TIME] = {.type = LEASE_EVENT_IDLE},
		[ORPHAN_TIME] = {.type = LEASE_EVENT_ORPHAN_TIME},
	};

	return events[kind];
}

static const char *state_name(enum lease_state state)
{
	static const char *const names[] = {"OFF",     "IDLE",     "ASKED",    "RESTORING",
					    "HOLDING", "DRAINING", "EVICTING", "ORPHAN"};

	return names[state];
}

/* What is not named is refused and changes nothing. */
static const char *const expected[FROM_COUNT][KIND_COUNT] = {
	[OFF] = {[REGISTERED] = "cb IDLE",
		 [REGISTERED_WANTING] = "cbq ASKED",
		 [REGISTERED_RUNNING] = " HOLDING"},
	[IDLE] = {[LOST] = "t ORPHAN",
		  [WANT] = "q ASKED",
		  [FORESEEN] = "p IDLE",
		  [LOCK_OK] = "r IDLE",
		  [LOCK_OK_OUT] = "r IDLE",
		  [DROP_0] = "be EVICTING"},
	[ASKED] = {[LOST] = "t ORPHAN",
		   [WANT] = "m ASKED",
		   [LOCK_OK] = "bo HOLDING",
		   [DROP_0] = "be EVICTING",
		   [BUDGET_ODD] = "bi RESTORING",
		   [REFUSED] = "f ASKED"},
	[COMING] = {[LOST] = " RESTORING",
		    [PART] = "br RESTORING",
		    [DONE] = "bm ASKED",
		    [DONE_WANTING] = "bm ASKED",
		    [FAILED] = "br ASKED"},
	[USED_UP] = {[LOST] = " RESTORING",
		     [BUDGET_ODD] = "b RESTORING",
		     [DONE] = "bm ASKED",
		     [DONE_WANTING] = "bm ASKED",
		     [FAILED] = "bm ASKED"},
	[HOLDING] = {[LOST] = "b OFF",
		     [WANT] = "m HOLDING",
		     [LOCK_OK] = "b HOLDING",
		     [LOCK_OK_OUT] = "b HOLDING",
		     [DROP_OURS] = "d DRAINING",
		     [BUDGET_EVEN] = "b HOLDING",
		     [REFUSED] = "f HOLDING",
		     [PREPARE] = "p HOLDING",
		     [FORESEEN] = "p HOLDING",
		     [IDLE_TIME] = "d DRAINING"},
	[UNNUMBERED] = {[LOST] = "b OFF",
			[WANT] = "m HOLDING",
			[LOCK_OK] = "b HOLDING",
			[LOCK_OK_OUT] = "b HOLDING",
			[BUDGET_EVEN] = "b HOLDING",
			[REFUSED] = "f HOLDING",
			[PREPARE] = "p HOLDING",
			[FORESEEN] = "p HOLDING"},
	[DRAINING] = {[LOST] = " DRAINING",
		      [DONE] = "e EVICTING",
		      [DONE_WANTING] = "e EVICTING",
		      [FAILED] = "or HOLDING"},
	[DRAINING0] = {[LOST] = " DRAINING",
		       [DONE] = "br IDLE",
		       [DONE_WANTING] = "br ASKED",
		       [FAILED] = "or HOLDING"},
	[GIVING_UP] = {[LOST] = " DRAINING",
		       [DONE] = "br IDLE",
		       [DONE_WANTING] = "br ASKED",
		       [FAILED] = "o HOLDING"},
	[EVICTING] = {[LOST] = " EVICTING",
		      [DONE] = "br IDLE",
		      [DONE_WANTING] = "br ASKED",
		      [PROGRESS] = "bm EVICTING",
		      [FAILED] = "i RESTORING"},
	[EVICTED_PART] = {[LOST] = " EVICTING",
			  [DONE] = "br IDLE",
			  [DONE_WANTING] = "br ASKED",
			  [PROGRESS] = "m EVICTING",
			  [FAILED] = "br ASKED"},
	[UNDOING] = {[LOST] = " RESTORING",
		     [DONE] = "or HOLDING",
		     [DONE_WANTING] = "or HOLDING",
		     [FAILED] = "br ASKED"},
	[FREEING] = {[LOST] = " EVICTING",
		     [DONE] = "r ASKED",
		     [DONE_WANTING] = "r ASKED",
		     [PROGRESS] = "m EVICTING",
		     [FAILED] = "r ASKED"},
	[FREEING_I] = {[LOST] = " EVICTING",
		       [DONE] = "r IDLE",
		       [DONE_WANTING] = "rq ASKED",
		       [PROGRESS] = "m EVICTING",
		       [FAILED] = "rq ASKED"},
	[ORPHAN] = {[REGISTERED] = "b IDLE",
		    [REGISTERED_WANTING] = "bq ASKED",
		    [REGISTERED_RUNNING] = "b IDLE",
		    [ORPHAN_TIME] = "bi RESTORING"},
	[ALONE] = {[DONE] = "bo OFF", [DONE_WANTING] = "bo OFF", [FAILED] = "t ORPHAN"},
	[LOST_DRAIN] = {[DONE] = "bo OFF", [DONE_WANTING] = "bo OFF", [FAILED] = "bo OFF"},
	[LOST_EVICT] = {[DONE] = "t ORPHAN", [DONE_WANTING] = "t ORPHAN", [FAILED] = "t ORPHAN"},
	[LOST_PART] = {[DONE] = "t ORPHAN", [DONE_WANTING] = "t ORPHAN", [FAILED] = "t ORPHAN"},
	[LOST_COMING] = {[DONE] = "t ORPHAN", [DONE_WANTING] = "t ORPHAN", [FAILED] = "t ORPHAN"},
	[LOST_USED_UP] = {[DONE] = "t ORPHAN", [DONE_WANTING] = "t ORPHAN", [FAILED] = "t ORPHAN"},
	[LOST_UNDO] = {[DONE] = "bo OFF", [DONE_WANTING] = "bo OFF", [FAILED] = "t ORPHAN"},
};

static void every_event_in_every_state(void **state)
{
	(void)state;
	for (int from = 0; from < FROM_COUNT; from++) {
		for (int kind = 0; kind < KIND_COUNT; kind++) {
			const char *want = expected[from][kind];
			struct lease before;
			char text[64];

			bring_into((enum from)from);
			before = lease;
			(void)snprintf(text, sizeof(text), "%s", step(event_of((enum kind)kind)));
			if (!want) {
				if (strcmp(text, "-") != 0)
					fail_msg("state %d event %d did %s", from, kind, text);
				assert_memory_equal(&before, &lease, sizeof(lease));
				continue;
			}
			(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), " %s",
				       state_name(lease.state));
			if (strcmp(text, want) != 0)
				fail_msg("state %d event %d: '%s', not '%s'", from, kind, text,
					 want);
		}
	}
}

static void a_drop_is_answered_with_its_own_numbers(void **state)
{
	(void)state;
	bring_into(EVICTING);
	assert_string_equal(
		step((struct lease_event){.type = LEASE_EVENT_EVICTED, .wanting = true}), "br");
	assert_int_equal(did.at[0].budget, 0);
	assert_int_equal(last()->grant, 7);
	assert_int_equal(last()->epoch, 4);
	assert_int_equal(last()->outcome, 0);
	assert_true(last()->wants);
}

static void a_failed_eviction_is_undone_before_the_gate_opens(void **state)
{
	(void)state;
	bring_into(UNDOING);
	assert_string_equal(go(LEASE_EVENT_RESTORED), "or");
	assert_int_equal(last()->outcome, 3);
	assert_int_equal(last()->grant, 7);
	assert_int_equal(lease.budget, 100);
	bring_into(UNDOING);
	/* Bytes are still out: nothing may run, so it has stopped, with less freed. */
	assert_string_equal(step((struct lease_event){.type = LEASE_EVENT_RESTORED, .outcome = 3}),
			    "br");
	assert_int_equal(last()->outcome, 0);
	assert_true(last()->wants);
}

static void an_eviction_that_was_told_of_is_not_undone(void **state)
{
	(void)state;
	bring_into(EVICTED_PART);
	assert_int_equal(lease.budget, 0);
	/* What has gone is another's by now: to bring it back would overflow the card. */
	assert_string_equal(step((struct lease_event){.type = LEASE_EVENT_EVICTED, .outcome = 3}),
			    "br");
	assert_int_equal(last()->grant, 7);
	assert_int_equal(last()->outcome, 0);
	assert_true(last()->wants);
	assert_false(lease_is_open(&lease));
}

static void a_part_that_is_in_stays_and_more_is_awaited(void **state)
{
	(void)state;
	bring_into(COMING);
	assert_string_equal(step((struct lease_event){.type = LEASE_EVENT_RESTORED, .outcome = 7}),
			    "br");
	assert_int_equal(last()->grant, 0);
	assert_int_equal(last()->epoch, 1);
	assert_int_equal(last()->outcome, 7);
	/* Nothing more is taken of it meanwhile. */
	assert_int_equal(lease.budget, 0);
	assert_string_equal(
		step((struct lease_event){.type = LEASE_EVENT_BUDGET, .budget = 90, .epoch = 3}),
		"bi");
	assert_string_equal(go(LEASE_EVENT_RESTORED), "bm");
	assert_int_equal(lease.epoch, 3);
	/* Or it is asked for after all. */
	drop(0, 50, "be");
	assert_int_equal(lease.budget, 0);
}

static void more_can_come_while_a_part_is_still_on_its_way_in(void **state)
{
	(void)state;
	bring_into(USED_UP);
	assert_int_equal(last()->grant, 0);
	assert_int_equal(last()->epoch, 1);
	assert_int_equal(last()->outcome, 7);
	assert_true(last()->wants);
	/* What is freed meanwhile is not taken again. */
	assert_int_equal(lease.budget, 0);
	assert_string_equal(
		step((struct lease_event){.type = LEASE_EVENT_BUDGET, .budget = 90, .epoch = 3}),
		"b");
	assert_int_equal(lease.budget, 90);
	assert_string_equal(step((struct lease_event){.type = LEASE_EVENT_PART, .outcome = 7}),
			    "br");
	assert_int_equal(last()->epoch, 3);
	assert_string_equal(
		step((struct lease_event){.type = LEASE_EVENT_BUDGET, .budget = 99, .epoch = 5}),
		"b");
	/* A budget of which no end was told is answered with how it ended. */
	assert_string_equal(step((struct lease_event){.type = LEASE_EVENT_RESTORED, .outcome = 5}),
			    "br");
	assert_int_equal(last()->epoch, 5);
	assert_int_equal(last()->outcome, 5);
}

static void growth_given_too_late_is_not_taken_for_coming_in(void **state)
{
	(void)state;
	bring_into(GIVING_UP);
	assert_string_equal(step((struct lease_event){.type = LEASE_EVENT_DRAINED}), "br");
	assert_string_equal(go(LEASE_EVENT_WANT), "q");
	/* Sent before our release arrived: to take it would overflow the card. */
	assert_string_equal(
		step((struct lease_event){.type = LEASE_EVENT_BUDGET, .budget = 500, .epoch = 4}),
		"-");
	assert_int_equal(lease.budget, 0);
	assert_int_equal(lease.state, LEASE_ASKED);
}

static void bytes_to_move_are_passed_on(void **state)
{
	(void)state;
	bring_into(DRAINING);
	assert_string_equal(go(LEASE_EVENT_DRAINED), "e");
	assert_int_equal(last()->bytes, 10);
	bring_into(IDLE);
	drop(0, 33, "be");
	assert_int_equal(last()->bytes, 33);
}

static void alone_the_memory_has_no_bound(void **state)
{
	(void)state;
	bring_into(HOLDING);
	assert_string_equal(go(LEASE_EVENT_LOST), "b");
	assert_true(last()->budget == LEASE_UNLIMITED);
	assert_true(lease_is_open(&lease));
	bring_into(ORPHAN);
	assert_false(lease_is_open(&lease));
	assert_string_equal(go(LEASE_EVENT_ORPHAN_TIME), "bi");
	assert_true(did.at[0].budget == LEASE_UNLIMITED);
}

static void an_unknown_event_changes_nothing(void **state)
{
	(void)state;
	bring_into(HOLDING);
	assert_string_equal(go(LEASE_EVENT_COUNT_), "-");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_event_in_every_state),
		cmocka_unit_test(a_drop_is_answered_with_its_own_numbers),
		cmocka_unit_test(a_failed_eviction_is_undone_before_the_gate_opens),
		cmocka_unit_test(an_eviction_that_was_told_of_is_not_undone),
		cmocka_unit_test(a_part_that_is_in_stays_and_more_is_awaited),
		cmocka_unit_test(more_can_come_while_a_part_is_still_on_its_way_in),
		cmocka_unit_test(growth_given_too_late_is_not_taken_for_coming_in),
		cmocka_unit_test(bytes_to_move_are_passed_on),
		cmocka_unit_test(alone_the_memory_has_no_bound),
		cmocka_unit_test(an_unknown_event_changes_nothing),
	};

	return cmocka_run_group_tests_name("core/lease", tests, NULL, NULL);
}
