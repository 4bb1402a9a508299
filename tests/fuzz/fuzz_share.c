/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any sequence of events to the machine that shares a GPU's time, as hostile or broken
 * clients could cause it: its invariants hold after each, refused events yield nothing, it
 * never asks to be called again at once for ever, and when all are silent it lets go.
 */

#include "core/timeshare/timeshare.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int fuzz_left_out(void);

#define CLIENTS  6
#define GPUS     2
#define SPIN_MAX 1000
#define S        1000000000ull

struct input {
	const uint8_t *data;
	size_t size;
};

static struct timeshare share;
static struct timeshare_client clients[CLIENTS];
static uint64_t until_ns[CLIENTS]; /* held until then, as told */
static uint64_t now_ns;
static bool was_accepted[TIMESHARE_EVENT_COUNT_];

static uint8_t byte(struct input *in)
{
	if (in->size == 0)
		return 0;
	in->size--;
	return *in->data++;
}

/* Mostly small, sometimes as large as can be. */
static uint64_t amount(struct input *in)
{
	uint8_t b = byte(in);

	if (b < 100)
		return b * 1000ull;
	if (b < 250)
		return (uint64_t)b << (b - 100) % 56;
	return UINT64_MAX - (b - 250);
}

static void step(struct timeshare_event *event)
{
	struct timeshare_actions actions;
	int r;

	event->now_ns = now_ns;
	r = timeshare_step(&share, event, &actions);
	if (r < 0 || r > TIMESHARE_E_STALE || (r && actions.n) || actions.n > TIMESHARE_ACTIONS_MAX)
		abort();
	was_accepted[event->type] |= !r;
	for (uint32_t i = 0; i < actions.n; i++) {
		const struct timeshare_action *action = &actions.at[i];

		if (action->type == TIMESHARE_ACTION_REPORT)
			continue;
		if (action->client >= CLIENTS || action->slice_us > TIMESHARE_SLICE_MAX ||
		    action->hold_us * 1000 > share.config.hold_ns + share.config.hint_ns)
			abort();
		until_ns[action->client] = now_ns + action->hold_us * 1000;
	}
	timeshare_assert_valid(&share);
}

static void pass(uint64_t ns)
{
	struct timeshare_event event = {.type = TIMESHARE_EVENT_TIME};
	uint64_t end_ns = now_ns + ns;
	int n = 0;

	while (timeshare_deadline(&share) <= end_ns) {
		n = timeshare_deadline(&share) > now_ns ? 0 : n + 1;
		if (n == SPIN_MAX)
			abort();
		if (timeshare_deadline(&share) > now_ns)
			now_ns = timeshare_deadline(&share);
		step(&event);
	}
	now_ns = end_ns;
}

static void configure(struct input *in, struct timeshare_config *config)
{
	uint8_t b = byte(in);

	timeshare_config_default(config);
	config->is_holding = b & 1;
	config->slice_rule = (enum timeshare_rule)(b % (TIMESHARE_RULE_COUNT_ + 1));
	config->is_saving = b & 2;
	config->energy_budget_w = b / 4;
	config->lc_max_percent = b / 2;
	config->hold_ns = (byte(in) + 1) * 10000000ull;
	config->turn_ns = (byte(in) + 1) * 1000000ull;
	config->answer_ns = (byte(in) + 1) * 10000000ull;
}

static void one_event(struct input *in)
{
	struct timeshare_config config;
	struct timeshare_event event = {.type = TIMESHARE_EVENT_GPU};
	const struct timeshare_client *c;
	uint8_t b = byte(in);

	if (b < 255)
		event.type = (enum timeshare_event_type)(b % TIMESHARE_EVENT_GPU);
	b = byte(in);
	if (b < 240)
		pass(b * 100000ull);
	else
		pass((b - 239) * S);
	event.client = byte(in) % CLIENTS;
	c = &clients[event.client];
	event.gpu = byte(in) % (GPUS + 1) * 15 / 2;
	b = byte(in);
	event.claim =
		(struct timeshare_claim){(enum timeshare_class)(b % 5), b * 40u, b * 100u, b / 2};
	event.running = b & 1;
	event.is_held = b & 2;
	event.n_calls = b < 250 ? b : UINT32_MAX;
	event.outcome = b & 4 && b & 8 ? 6 : 0;
	event.activity = (enum timeshare_activity)(byte(in) % (TIMESHARE_ACTIVITY_COUNT_ + 1));
	event.busy_ns = c->usage.busy_ns + amount(in);
	event.held_ns = c->usage.held_ns + amount(in);
	event.value = amount(in);
	event.took_ns = amount(in);
	event.seq = c->told.seq + (byte(in) % 8 ? 0 : (uint64_t)byte(in) - 128);
	if (event.type == TIMESHARE_EVENT_CONFIG) {
		configure(in, &config);
		event.config = &config;
	}
	step(&event);
}

int fuzz_left_out(void)
{
	for (int i = 0; i < TIMESHARE_EVENT_COUNT_; i++) {
		if (!was_accepted[i])
			return i;
	}
	return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct timeshare_config config;

	memset(clients, 0, sizeof(clients));
	memset(until_ns, 0, sizeof(until_ns));
	now_ns = S;
	timeshare_config_default(&config);
	timeshare_init(&share, clients, CLIENTS, &config);
	while (in.size > 0)
		one_event(&in);
	/* Bursts in which nothing is said end; nobody stays active without saying so. */
	for (uint32_t i = 0; i < CLIENTS; i++)
		step(&(struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
					       .client = i,
					       .activity = TIMESHARE_ACTIVITY_IDLE,
					       .busy_ns = clients[i].usage.busy_ns,
					       .held_ns = clients[i].usage.held_ns});
	pass(30 * S);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		if (until_ns[i] > now_ns)
			abort();
	}
	return 0;
}
