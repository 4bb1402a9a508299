/* SPDX-License-Identifier: Apache-2.0 */

#include "core/client/freeze_word.h"

#include <stdbool.h>

#define STATE_BITS  3
#define COUNT_BITS  12
#define COUNT_ONE   (1ull << STATE_BITS)
#define EPOCH_SHIFT (STATE_BITS + COUNT_BITS)
#define EPOCH_ONE   (1ull << EPOCH_SHIFT)

enum freeze_word_state freeze_word_state(uint64_t word)
{
	return (enum freeze_word_state)(word & ((1u << STATE_BITS) - 1));
}

uint32_t freeze_word_births(uint64_t word)
{
	return (uint32_t)(word >> STATE_BITS) & FREEZE_WORD_COUNT_MAX;
}

uint64_t freeze_word_epoch(uint64_t word)
{
	return word >> EPOCH_SHIFT;
}

static uint64_t word_with_state(uint64_t word, enum freeze_word_state state)
{
	return (word & ~((1ull << STATE_BITS) - 1)) | (uint64_t)state;
}

/* The states that an event may come in, and the one that it leads to. */
static bool word_is_allowed(enum freeze_word_event event, enum freeze_word_state state,
			    enum freeze_word_state *ret_next)
{
	*ret_next = state;
	switch (event) {
	case FREEZE_WORD_BEGIN:
		*ret_next = FREEZE_WORD_FREEZING;
		return state == FREEZE_WORD_RUNNING;
	case FREEZE_WORD_FAIL:
		*ret_next = FREEZE_WORD_THAWING;
		return state == FREEZE_WORD_FREEZING;
	case FREEZE_WORD_OFF:
		*ret_next = FREEZE_WORD_FROZEN;
		return state == FREEZE_WORD_FREEZING;
	case FREEZE_WORD_WIDEN:
		*ret_next = FREEZE_WORD_FREEZING;
		return state == FREEZE_WORD_FROZEN;
	case FREEZE_WORD_COMMIT:
		*ret_next = FREEZE_WORD_COMMITTED;
		return state == FREEZE_WORD_FROZEN;
	case FREEZE_WORD_END:
		*ret_next = FREEZE_WORD_THAWING;
		return state == FREEZE_WORD_FROZEN || state == FREEZE_WORD_COMMITTED;
	case FREEZE_WORD_EXPIRE:
		*ret_next = FREEZE_WORD_THAWING;
		return state == FREEZE_WORD_FROZEN;
	case FREEZE_WORD_THAWED:
		*ret_next = FREEZE_WORD_RUNNING;
		return state == FREEZE_WORD_THAWING;
	case FREEZE_WORD_BORN:
		return state == FREEZE_WORD_FREEZING || state == FREEZE_WORD_FROZEN ||
		       state == FREEZE_WORD_COMMITTED;
	case FREEZE_WORD_SETTLED:
		return state != FREEZE_WORD_RUNNING;
	case FREEZE_WORD_HOLD:
	case FREEZE_WORD_DROP:
		return state == FREEZE_WORD_RUNNING;
	case FREEZE_WORD_EVENT_COUNT_:
		break;
	}
	return false;
}

static bool event_adds(enum freeze_word_event event)
{
	return event == FREEZE_WORD_BORN || event == FREEZE_WORD_HOLD;
}

static bool event_takes(enum freeze_word_event event)
{
	return event == FREEZE_WORD_SETTLED || event == FREEZE_WORD_DROP;
}

int freeze_word_step(uint64_t word, enum freeze_word_event event, uint64_t *ret_next)
{
	enum freeze_word_state next;
	uint32_t count = freeze_word_births(word);
	bool wants_none = event == FREEZE_WORD_BEGIN || event == FREEZE_WORD_THAWED;

	if (!word_is_allowed(event, freeze_word_state(word), &next))
		return FREEZE_WORD_E_STATE;
	if ((wants_none && count > 0) || (event_adds(event) && count == FREEZE_WORD_COUNT_MAX) ||
	    (event_takes(event) && count == 0))
		return FREEZE_WORD_E_COUNT;

	word = word_with_state(word, next);
	if (event == FREEZE_WORD_THAWED)
		word += EPOCH_ONE;
	else if (event_adds(event))
		word += COUNT_ONE;
	else if (event_takes(event))
		word -= COUNT_ONE;
	*ret_next = word;
	return 0;
}
