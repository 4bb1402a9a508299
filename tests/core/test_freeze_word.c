/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The word by itself: a table of every state and event. Then every interleaving of those
 * that share it, each step one load, compare-and-swap or control, against a GPU of two
 * channels, one of which is born meanwhile: a stress test would not meet most of them.
 */

#include "core/client/freeze_word.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the table ------------------------------------------------------------------ */

#define NO FREEZE_WORD_STATE_COUNT_ /* refused */

static const enum freeze_word_state expected[FREEZE_WORD_STATE_COUNT_][FREEZE_WORD_EVENT_COUNT_] = {
	/* clang-format off */
	/*               BEGIN                 FAIL                 OFF                 WIDEN                 COMMIT                 END                  EXPIRE               THAWED               BORN                   SETTLED                HOLD  DROP */
	[FREEZE_WORD_RUNNING] =   {FREEZE_WORD_FREEZING, NO, NO, NO, NO, NO, NO, NO, NO, NO, FREEZE_WORD_RUNNING, FREEZE_WORD_RUNNING},
	[FREEZE_WORD_FREEZING] =  {NO, FREEZE_WORD_THAWING, FREEZE_WORD_FROZEN, NO, NO, NO, NO, NO, FREEZE_WORD_FREEZING, FREEZE_WORD_FREEZING, NO, NO},
	[FREEZE_WORD_FROZEN] =    {NO, NO, NO, FREEZE_WORD_FREEZING, FREEZE_WORD_COMMITTED, FREEZE_WORD_THAWING, FREEZE_WORD_THAWING, NO, FREEZE_WORD_FROZEN, FREEZE_WORD_FROZEN, NO, NO},
	[FREEZE_WORD_COMMITTED] = {NO, NO, NO, NO, NO, FREEZE_WORD_THAWING, NO, NO, FREEZE_WORD_COMMITTED, FREEZE_WORD_COMMITTED, NO, NO},
	[FREEZE_WORD_THAWING] =   {NO, NO, NO, NO, NO, NO, NO, FREEZE_WORD_RUNNING, NO, FREEZE_WORD_THAWING, NO, NO},
	/* clang-format on */
};

/* A word in this state, with a birth under way if it can have one. */
static uint64_t word_in(enum freeze_word_state state, bool has_birth)
{
	static const enum freeze_word_event way[] = {FREEZE_WORD_BEGIN, FREEZE_WORD_OFF,
						     FREEZE_WORD_COMMIT, FREEZE_WORD_END};
	uint64_t word = 0;

	for (unsigned int i = 0; i < (unsigned int)state; i++) {
		assert_int_equal(freeze_word_step(word, way[i], &word), 0);
		if (i == 0 && has_birth)
			assert_int_equal(freeze_word_step(word, FREEZE_WORD_BORN, &word), 0);
	}
	assert_int_equal(freeze_word_state(word), state);
	return word;
}

static void every_state_meets_every_event(void **unused)
{
	(void)unused;
	for (int s = 0; s < FREEZE_WORD_STATE_COUNT_; s++) {
		for (int e = 0; e < FREEZE_WORD_EVENT_COUNT_; e++) {
			uint64_t word =
				word_in((enum freeze_word_state)s, e == FREEZE_WORD_SETTLED);
			uint64_t next = 0x5a5a;
			int r;

			if (e == FREEZE_WORD_DROP)
				(void)freeze_word_step(word, FREEZE_WORD_HOLD, &word);
			r = freeze_word_step(word, (enum freeze_word_event)e, &next);
			if (expected[s][e] == NO) {
				assert_int_equal(r, FREEZE_WORD_E_STATE);
				assert_int_equal(next, 0x5a5a);
			} else {
				assert_int_equal(r, 0);
				assert_int_equal(freeze_word_state(next), expected[s][e]);
			}
		}
	}
}

static void births_are_counted_and_hold_up_the_end(void **unused)
{
	uint64_t word = word_in(FREEZE_WORD_FROZEN, false), next;

	(void)unused;
	assert_int_equal(freeze_word_step(word, FREEZE_WORD_SETTLED, &next), FREEZE_WORD_E_COUNT);
	for (unsigned int i = 1; i <= FREEZE_WORD_COUNT_MAX; i++) {
		assert_int_equal(freeze_word_step(word, FREEZE_WORD_BORN, &word), 0);
		assert_int_equal(freeze_word_births(word), i);
		assert_int_equal(freeze_word_state(word), FREEZE_WORD_FROZEN);
	}
	assert_int_equal(freeze_word_step(word, FREEZE_WORD_BORN, &next), FREEZE_WORD_E_COUNT);
	assert_int_equal(freeze_word_step(word, FREEZE_WORD_EXPIRE, &word), 0);
	assert_int_equal(freeze_word_step(word, FREEZE_WORD_BORN, &next), FREEZE_WORD_E_STATE);
	while (freeze_word_births(word) > 0) {
		assert_int_equal(freeze_word_step(word, FREEZE_WORD_THAWED, &next),
				 FREEZE_WORD_E_COUNT);
		assert_int_equal(freeze_word_step(word, FREEZE_WORD_SETTLED, &word), 0);
	}
	assert_int_equal(freeze_word_epoch(word), 0);
	assert_int_equal(freeze_word_step(word, FREEZE_WORD_THAWED, &word), 0);
	assert_int_equal(freeze_word_state(word), FREEZE_WORD_RUNNING);
	assert_int_equal(freeze_word_epoch(word), 1);
}

static void a_hold_keeps_a_freeze_from_beginning(void **unused)
{
	uint64_t word = 0, next;

	(void)unused;
	assert_int_equal(freeze_word_step(word, FREEZE_WORD_HOLD, &word), 0);
	assert_int_equal(freeze_word_step(word, FREEZE_WORD_BEGIN, &next), FREEZE_WORD_E_COUNT);
	assert_int_equal(freeze_word_step(word, FREEZE_WORD_DROP, &word), 0);
	assert_int_equal(freeze_word_step(word, FREEZE_WORD_BEGIN, &word), 0);
	assert_int_equal(freeze_word_step(word, FREEZE_WORD_HOLD, &next), FREEZE_WORD_E_STATE);
}

/* ---- the machine ------------------------------------------------------------------ */

enum { CHANNELS = 2, ROUNDS = 2 };

/* Who thaws: the agent after END or FAIL, the watchdog after EXPIRE. */
enum thaw_pc { THAW_WAIT, THAW_SWITCH0, THAW_DONE = THAW_SWITCH0 + CHANNELS };

enum agent_pc {
	AGENT_BEGIN,
	AGENT_SWITCH0, /* a channel after the other: off */
	AGENT_OFF = AGENT_SWITCH0 + CHANNELS,
	AGENT_WIDEN, /* and again */
	AGENT_COMMIT,
	AGENT_WORK, /* the memory is away */
	AGENT_END,
	AGENT_THAW,
	AGENT_WAIT = AGENT_THAW + THAW_DONE + 1, /* until whoever thaws is done */
	AGENT_DONE,
};

enum watch_pc { WATCH_EXPIRE, WATCH_THAW, WATCH_DONE = WATCH_THAW + THAW_DONE + 1 };

enum birth_pc {
	BIRTH_RECORD,
	BIRTH_ASK,
	BIRTH_SWITCH,
	BIRTH_SETTLE,
	BIRTH_RETURN, /* the program has it from here on */
	BIRTH_DONE,
};

struct machine {
	uint64_t word;
	uint8_t agent, rounds, watch, birth;
	uint8_t will_fail;   /* the driver refuses the last channel, in the first round */
	uint8_t will_widen;  /* this round; then the first time takes off one channel less */
	uint8_t will_commit; /* this round */
	uint8_t is_recorded[CHANNELS];
	uint8_t is_off[CHANNELS];
	uint8_t is_usable[CHANNELS]; /* the program has it */
	uint8_t pad[1];
};

/* How the hook could be wrong; the model must notice each. */
enum mistake {
	MISTAKE_NONE,
	MISTAKE_NO_WAIT,         /* thaws while a birth is under way */
	MISTAKE_ASK_FIRST,       /* a thread asks before it records */
	MISTAKE_NO_BIRTHS,       /* a thread does not look at the word */
	MISTAKE_WATCHDOG_STORES, /* the watchdog does not compare before it swaps */
	MISTAKE_COUNT_,
};

struct model {
	enum mistake mistake;
	struct machine *states; /* visited, open addressing */
	uint8_t *used;
	size_t capacity;
	struct machine *stack;
	size_t n_stack, n_states, n_ends;
	bool is_violated;
};

static void push(struct model *model, const struct machine *machine)
{
	const uint8_t *bytes = (const uint8_t *)machine;
	uint64_t hash = 14695981039346656037u;
	size_t i;

	for (i = 0; i < sizeof(*machine); i++)
		hash = (hash ^ bytes[i]) * 1099511628211u;
	for (i = hash % model->capacity; model->used[i]; i = (i + 1) % model->capacity) {
		if (memcmp(&model->states[i], machine, sizeof(*machine)) == 0)
			return;
	}
	assert_true(++model->n_states < model->capacity);
	model->used[i] = 1;
	model->states[i] = *machine;
	model->stack[model->n_stack++] = *machine;
}

static bool step(struct machine *m, enum freeze_word_event event)
{
	return freeze_word_step(m->word, event, &m->word) == 0;
}

/* One step of whoever thaws; false: it has to wait. */
static bool thaw_step(const struct model *model, struct machine *m, uint8_t pc)
{
	if (pc == THAW_WAIT)
		return model->mistake == MISTAKE_NO_WAIT || freeze_word_births(m->word) == 0;
	if (pc < THAW_DONE) {
		if (m->is_recorded[pc - THAW_SWITCH0])
			m->is_off[pc - THAW_SWITCH0] = 0;
		return true;
	}
	/* Without the wait it may be refused: it then is at it again. */
	return step(m, FREEZE_WORD_THAWED);
}

static bool agent_step(const struct model *model, struct machine *m)
{
	if (m->agent >= AGENT_SWITCH0 && m->agent < AGENT_OFF) {
		uint8_t channel = m->agent - AGENT_SWITCH0;

		if (m->will_fail && m->rounds == 0 && channel == CHANNELS - 1) {
			assert_true(step(m, FREEZE_WORD_FAIL));
			m->agent = AGENT_THAW;
			return true;
		}
		if (m->is_recorded[channel] && (!m->will_widen || channel > 0))
			m->is_off[channel] = 1;
		m->agent++;
		return true;
	}
	if (m->agent >= AGENT_THAW && m->agent < AGENT_WAIT) {
		if (!thaw_step(model, m, m->agent - AGENT_THAW))
			return false;
		m->agent++;
		return true;
	}
	switch (m->agent) {
	case AGENT_BEGIN:
		assert_true(step(m, FREEZE_WORD_BEGIN));
		m->agent = AGENT_SWITCH0;
		return true;
	case AGENT_OFF:
		assert_true(step(m, FREEZE_WORD_OFF));
		m->agent = m->will_widen ? AGENT_WIDEN : m->will_commit ? AGENT_COMMIT : AGENT_END;
		return true;
	case AGENT_WIDEN:
		m->agent = step(m, FREEZE_WORD_WIDEN) ? AGENT_SWITCH0 : AGENT_END;
		m->will_widen = 0;
		return true;
	case AGENT_COMMIT:
		m->agent = step(m, FREEZE_WORD_COMMIT) ? AGENT_WORK : AGENT_END;
		return true;
	case AGENT_WORK:
		m->agent = AGENT_END;
		return true;
	case AGENT_END:
		m->agent = step(m, FREEZE_WORD_END) ? AGENT_THAW : AGENT_WAIT;
		return true;
	case AGENT_WAIT:
		if (freeze_word_state(m->word) == FREEZE_WORD_THAWING)
			return false;
		m->agent = ++m->rounds < ROUNDS ? AGENT_BEGIN : AGENT_DONE;
		m->will_commit = 0;
		return true;
	default:
		return false;
	}
}

/* It fires once, at any time. */
static bool watch_step(const struct model *model, struct machine *m)
{
	if (m->watch == WATCH_EXPIRE) {
		if (model->mistake == MISTAKE_WATCHDOG_STORES &&
		    freeze_word_state(m->word) == FREEZE_WORD_COMMITTED) {
			m->word = (m->word & ~7ull) | FREEZE_WORD_THAWING;
			m->watch = WATCH_THAW;
			return true;
		}
		m->watch = step(m, FREEZE_WORD_EXPIRE) ? WATCH_THAW : WATCH_DONE;
		return true;
	}
	if (m->watch == WATCH_DONE || !thaw_step(model, m, m->watch - WATCH_THAW))
		return false;
	m->watch++;
	return true;
}

static bool birth_step(const struct model *model, struct machine *m)
{
	const uint8_t newborn = CHANNELS - 1;
	bool asks_first = model->mistake == MISTAKE_ASK_FIRST;

	switch ((enum birth_pc)m->birth) {
	case BIRTH_RECORD:
		if (!asks_first)
			m->is_recorded[newborn] = 1;
		m->birth = model->mistake == MISTAKE_NO_BIRTHS ? BIRTH_RETURN : BIRTH_ASK;
		return true;
	case BIRTH_ASK:
		m->birth = step(m, FREEZE_WORD_BORN) ? BIRTH_SWITCH : BIRTH_RETURN;
		return true;
	case BIRTH_SWITCH:
		m->is_off[newborn] = 1;
		m->birth = BIRTH_SETTLE;
		return true;
	case BIRTH_SETTLE:
		(void)step(m, FREEZE_WORD_SETTLED);
		m->birth = BIRTH_RETURN;
		return true;
	case BIRTH_RETURN:
		m->is_recorded[newborn] = 1;
		m->is_usable[newborn] = 1;
		m->birth = BIRTH_DONE;
		return true;
	case BIRTH_DONE:
		break;
	}
	return false;
}

static void look(struct model *model, const struct machine *m, bool is_end)
{
	bool is_away = m->agent == AGENT_WORK;

	for (int i = 0; i < CHANNELS; i++) {
		/* Nothing runs while memory is away, and in the end everything does. */
		if (is_away && m->is_usable[i] && !m->is_off[i])
			model->is_violated = true;
		if (is_end && m->is_off[i])
			model->is_violated = true;
	}
	if (is_away && freeze_word_state(m->word) != FREEZE_WORD_COMMITTED)
		model->is_violated = true;
	if (!is_end)
		return;
	model->n_ends++;
	/* Who stands still must be done: nobody waits for ever. */
	if (m->agent != AGENT_DONE || m->watch != WATCH_DONE || m->birth != BIRTH_DONE ||
	    freeze_word_state(m->word) != FREEZE_WORD_RUNNING || freeze_word_births(m->word))
		model->is_violated = true;
}

static void visit(struct model *model, const struct machine *machine)
{
	struct machine next = *machine;
	bool is_end = true;

	if (agent_step(model, &next)) {
		push(model, &next);
		is_end = false;
	}
	next = *machine;
	if (watch_step(model, &next)) {
		push(model, &next);
		is_end = false;
	}
	next = *machine;
	if (birth_step(model, &next)) {
		push(model, &next);
		is_end = false;
	}
	look(model, machine, is_end);
}

static bool is_safe(enum mistake mistake)
{
	struct model model = {.mistake = mistake, .capacity = (size_t)1 << 18};

	model.states = calloc(model.capacity, sizeof(*model.states));
	model.stack = calloc(model.capacity, sizeof(*model.stack));
	model.used = calloc(model.capacity, 1);
	assert_true(model.states && model.stack && model.used);
	for (uint8_t variant = 0; variant < 8; variant++) {
		struct machine start;

		memset(&start, 0, sizeof(start));
		start.is_recorded[0] = 1;
		start.is_usable[0] = 1;
		start.will_fail = variant & 1;
		start.will_commit = variant >> 1 & 1;
		start.will_widen = variant >> 2;
		push(&model, &start);
	}
	while (model.n_stack > 0) {
		struct machine machine = model.stack[--model.n_stack];

		visit(&model, &machine);
	}
	/* The machine is not so small that nothing can happen in it. */
	assert_true(model.n_states > 200);
	assert_true(model.n_ends > 0);
	free(model.states);
	free(model.stack);
	free(model.used);
	return !model.is_violated;
}

static void nothing_runs_while_committed_and_nothing_stays_frozen(void **unused)
{
	(void)unused;
	assert_true(is_safe(MISTAKE_NONE));
}

static void each_mistake_shows(void **unused)
{
	(void)unused;
	for (int m = MISTAKE_NONE + 1; m < MISTAKE_COUNT_; m++)
		assert_false(is_safe((enum mistake)m));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_state_meets_every_event),
		cmocka_unit_test(births_are_counted_and_hold_up_the_end),
		cmocka_unit_test(a_hold_keeps_a_freeze_from_beginning),
		cmocka_unit_test(nothing_runs_while_committed_and_nothing_stays_frozen),
		cmocka_unit_test(each_mistake_shows),
	};

	return cmocka_run_group_tests_name("core/freeze_word", tests, NULL, NULL);
}
