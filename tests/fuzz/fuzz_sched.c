/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any sequence of events to the scheduler's core, as hostile or broken clients could
 * cause it: its invariants hold after each, refused events yield nothing, and it never
 * asks to be called again at once for ever.
 */

#include "core/sched.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int fuzz_left_out(void);

#define CLIENTS  6
#define GPUS     2
#define SPIN_MAX 1000

struct input {
	const uint8_t *data;
	size_t size;
};

static struct sched sched;
static struct sched_client clients[CLIENTS];
static bool was_accepted[SCHED_EVENT_COUNT_];

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

	if (b < 200)
		return b;
	if (b < 250)
		return (uint64_t)b << (b - 200);
	return UINT64_MAX - (b - 250);
}

static void step(struct sched_event *event)
{
	struct sched_actions actions;
	int r = sched_step(&sched, event, &actions);

	if (r < 0 || r > SCHED_E_CONFIG || (r && actions.n))
		abort();
	if (actions.n > SCHED_ACTIONS_MAX)
		abort();
	was_accepted[event->type] |= !r;
	for (uint32_t i = 0; i < actions.n; i++) {
		if (actions.at[i].client >= CLIENTS)
			abort();
	}
	sched_assert_valid(&sched);
}

static void pass_time(struct input *in, uint64_t *now)
{
	struct sched_event event = {.type = SCHED_EVENT_TIME};
	uint64_t seconds = byte(in) % 64;
	int n = 0;

	*now += seconds * 1000000000ull + byte(in);
	while (sched_deadline(&sched) <= *now) {
		if (n++ == SPIN_MAX)
			abort();
		event.now_ns = *now;
		step(&event);
	}
}

static void configure(struct input *in, struct sched_config *config)
{
	uint8_t b = byte(in);

	sched_config_default(config);
	config->mode = (enum sched_mode)(b & 3);
	config->switch_mode = (enum sched_switch_mode)(b >> 2 & 1);
	config->anti_thrash = b & 8;
	config->reserve_percent = b >> 4;
	b = byte(in);
	config->tq_ns = (uint64_t)b * 1000000000ull;
	config->policy = (enum sched_policy)(b & 3);
	config->fair_users = b & 4;
	config->moving_percent = b >> 3;
}

/* Often the number that is right. */
static uint64_t near(struct input *in, uint64_t right)
{
	uint8_t b = byte(in);

	return b < 200 ? right : right + b - 228;
}

/* The newer types have bytes of their own, so that the corpus means what it did. */
static enum sched_event_type event_type(struct input *in)
{
	uint8_t b = byte(in);

	if (b < 234)
		return (enum sched_event_type)(b % (SCHED_EVENT_TIME + 1));
	if (b == 255)
		return SCHED_EVENT_PAUSE;
	if (b >= 250)
		return SCHED_EVENT_DOUBT;
	if (b == 249)
		return SCHED_EVENT_AHEAD;
	if (b == 248)
		return SCHED_EVENT_GANG;
	if (b == 247)
		return SCHED_EVENT_PROCESS;
	if (b == 246)
		return SCHED_EVENT_PINNED;
	return b & 1 ? SCHED_EVENT_CLAIM : SCHED_EVENT_USED;
}

static struct sched_claim claim_of(uint8_t b)
{
	return (struct sched_claim){
		.priority = (enum sched_priority)(b >> 5 & 7),
		.weight = b & 8 ? 0 : 10u << (b & 7),
		.slo_ns = b & 16 ? (uint64_t)b * 100000000 : 0,
	};
}

static void one_event(struct input *in, uint64_t *now)
{
	struct sched_config config;
	struct sched_event event = {.type = event_type(in)};
	struct sched_client *c;
	uint8_t flags;

	pass_time(in, now);
	event.now_ns = *now;
	event.client = byte(in) % CLIENTS;
	c = &clients[event.client];
	event.gpu = byte(in) % (GPUS + 1);
	if (event.type == SCHED_EVENT_CONFIG) {
		configure(in, &config);
		event.config = &config;
	}
	flags = byte(in);
	event.running = flags & 1;
	event.fixed = flags & 2 && flags & 4;
	event.owner = flags >> 4 & 3;
	event.claim = claim_of(event.type == SCHED_EVENT_JOIN ? flags >> 6 << 5 | (flags & 56) >> 3
							      : flags);
	event.wants = flags & 8;
	event.stops = (enum sched_stops)((flags & 3) % (SCHED_STOPS_DRAINING + 1));
	event.is_paused = flags & 1;
	event.is_stopped = flags & 1;
	event.is_done = flags & 8;
	event.outcome = flags & 16 ? flags >> 5 : 0;
	event.is_part = event.outcome == 7; /* enum nvshare_outcome's */
	event.is_short = event.outcome == 3;
	event.grant = near(in, c->state >= SCHED_CLIENT_RUNNING ? c->grant : 0);
	event.epoch = near(in, c->epoch);
	event.budget = amount(in);
	event.bytes = amount(in);
	event.external = amount(in);
	event.moved = amount(in);
	event.link_bandwidth = event.moved;
	event.move_ns = amount(in);
	event.memory.resident = amount(in);
	event.memory.swapped = amount(in);
	event.memory.pinned = amount(in);
	event.memory.wanted = amount(in);
	event.memory.wanted_pinned = amount(in);
	event.memory.pager_context = event.memory.pinned;
	event.gang = (flags & 7) < CLIENTS ? flags & 7 : SCHED_NONE;
	event.gang_size = flags >> 6;
	event.doubted = event.type == SCHED_EVENT_DOUBT ? event.bytes : 0;
	event.gpu_ns = event.type == SCHED_EVENT_USED ? event.bytes << (flags & 31) : 0;
	step(&event);
}

int fuzz_left_out(void)
{
	for (int i = 0; i < SCHED_EVENT_COUNT_; i++) {
		if (!was_accepted[i])
			return i;
	}
	return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct sched_config config;
	uint64_t now = 0;

	sched_config_default(&config);
	sched_init(&sched, clients, CLIENTS, &config);
	for (uint32_t gpu = 0; gpu < GPUS; gpu++)
		step(&(struct sched_event){.type = SCHED_EVENT_GPU,
					   .gpu = gpu,
					   .bytes = 256,
					   .external = byte(&in) / 4});
	while (in.size > 0)
		one_event(&in, &now);
	return 0;
}
