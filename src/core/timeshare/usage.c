/* SPDX-License-Identifier: Apache-2.0 */

#include "core/timeshare/usage.h"

#include "core/list.h"
#include "core/u64.h"

#include <assert.h>

#define ONE        1024u /* the unit of timeshare_usage::part */
#define EXACT_MAX  6u
#define SLICE_NONE 2048u        /* us: the driver's usual timeslice */
#define DRAWN_BITS 28           /* fractional bits of timeshare_gpu_usage::drawn */
#define PIECE_MAX  (1ull << 34) /* ns: keeps the products from overflow */

/* A client with a part of 0 would get no time, so that no report could raise its part. */
#define PART_MIN 32u

/* Work stops so long before the call that holds it ends; as in src/hook/share/share_off.c. */
#define STOPS_NS 230000u

#define OWED_MAX 50000000ull /* ns: looks do not find more than that too much by chance */

void usage_init(struct timeshare *timeshare, uint32_t gpu)
{
	list_init(&timeshare->gpus[gpu].usage.present);
}

static void usage_give(struct timeshare_gpu_usage *gu, struct timeshare_usage *u, uint64_t ns)
{
	u->gpu_ns += ns;
	u->given_ns += ns;
	gu->class_ns[u->is_critical] += ns;
	gu->unsure_ns[u->is_critical] += ns;
}

/* The chance that exactly the clients of mask are busy, in 1 << 30. *ret_sum_us: their slices. */
static uint64_t usage_chance(struct timeshare_usage *const *u, uint32_t n, uint32_t mask,
			     uint64_t *ret_sum_us)
{
	uint64_t p = 1u << 30, sum_us = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (mask >> i & 1) {
			p = p * u[i]->part / ONE;
			sum_us += u[i]->slice_us;
		} else {
			p = p * (ONE - u[i]->part) / ONE;
		}
	}
	*ret_sum_us = sum_us;
	return p;
}

static void usage_draw_exact(struct timeshare *timeshare, struct timeshare_gpu_usage *gu,
			     uint64_t ns)
{
	struct timeshare_usage *u[EXACT_MAX];
	uint64_t got_ns[EXACT_MAX] = {0}, sum_us;
	uint32_t n = 0;

	for (uint32_t at = gu->present.first; at != TIMESHARE_NONE;
	     at = timeshare->clients[at].link[TIMESHARE_LINK_PRESENT].next)
		u[n++] = &timeshare->clients[at].usage;
	for (uint32_t mask = 1; mask < 1u << n; mask++) {
		uint64_t p = usage_chance(u, n, mask, &sum_us);
		uint64_t part_ns = ns * (p >> 8) >> 22;

		for (uint32_t i = 0; i < n && part_ns; i++) {
			if (mask >> i & 1)
				got_ns[i] += part_ns * u[i]->slice_us / sum_us;
		}
	}
	for (uint32_t i = 0; i < n; i++) {
		usage_give(gu, u[i], got_ns[i]);
		gu->given_ns += got_ns[i];
	}
}

/* Gives ns to all at once, by weight. For each the others count as busy on average. */
static void usage_draw_many(struct timeshare_gpu_usage *gu, uint64_t ns)
{
	uint64_t others = gu->weights + gu->rests / gu->present.n;

	gu->drawn += (ns << DRAWN_BITS) / others;
	gu->given_ns += ns; /* the clients settle one by one, for this much in sum */
}

/* Settles the time since the last change of the present clients or their slices. */
static void usage_advance(struct timeshare *timeshare, uint32_t gpu)
{
	struct timeshare_gpu_usage *gu = &timeshare->gpus[gpu].usage;

	while (gu->at_ns < timeshare->now_ns) {
		uint64_t ns = timeshare->now_ns - gu->at_ns;

		if (gu->present.n > 0 && ns > PIECE_MAX)
			ns = PIECE_MAX;
		gu->at_ns += ns;
		gu->wall_ns += ns;
		if (gu->present.n > EXACT_MAX)
			usage_draw_many(gu, ns);
		else if (gu->present.n > 0)
			usage_draw_exact(timeshare, gu, ns);
	}
}

static uint64_t usage_weight(const struct timeshare_usage *u)
{
	return (uint64_t)u->slice_us * u->part;
}

static uint64_t usage_drawn_ns(const struct timeshare_gpu_usage *gu,
			       const struct timeshare_usage *u)
{
	return (uint64_t)((unsigned __int128)(gu->drawn - u->drawn) * usage_weight(u) >>
			  DRAWN_BITS);
}

/* Gives u the time that it has had while many were present. */
static void usage_settle(struct timeshare_gpu_usage *gu, struct timeshare_usage *u)
{
	if (!u->is_present)
		return;
	usage_give(gu, u, usage_drawn_ns(gu, u));
	u->drawn = gu->drawn;
}

static void usage_set_present(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];
	struct timeshare_gpu_usage *gu = &timeshare->gpus[c->gpu].usage;

	c->usage.drawn = gu->drawn;
	gu->weights += usage_weight(&c->usage);
	gu->rests += (uint64_t)c->usage.slice_us * (ONE - c->usage.part);
	list_push_back(LIST_SLOTS(timeshare->clients, TIMESHARE_LINK_PRESENT), &gu->present,
		       client);
	c->usage.since_ns = timeshare->now_ns;
	c->usage.is_present = true;
}

static void usage_set_absent(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];
	struct timeshare_gpu_usage *gu = &timeshare->gpus[c->gpu].usage;

	if (!c->usage.is_present)
		return;
	usage_settle(gu, &c->usage);
	gu->weights -= usage_weight(&c->usage);
	gu->rests -= (uint64_t)c->usage.slice_us * (ONE - c->usage.part);
	list_remove(LIST_SLOTS(timeshare->clients, TIMESHARE_LINK_PRESENT), &gu->present, client);
	c->usage.present_ns += timeshare->now_ns - c->usage.since_ns;
	c->usage.is_present = false;
}

void usage_join(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];

	if (timeshare->gpus[c->gpu].usage.wall_ns == 0)
		timeshare->gpus[c->gpu].usage.at_ns = timeshare->now_ns;
	c->usage = (struct timeshare_usage){
		.report_ns = timeshare->now_ns,
		.slice_us = SLICE_NONE,
		.part = ONE,
		.use_ppm = TIMESHARE_PPM,
	};
}

/* The time since the last report is final from here on. */
static void usage_confirm(struct timeshare_gpu_usage *gu, struct timeshare_usage *u)
{
	gu->unsure_ns[u->is_critical] -= u->given_ns;
	u->given_ns = 0;
}

void usage_leave(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];

	usage_advance(timeshare, c->gpu);
	usage_set_absent(timeshare, client);
	usage_confirm(&timeshare->gpus[c->gpu].usage, &c->usage);
}

void usage_set(struct timeshare *timeshare, uint32_t client, bool is_present, uint64_t slice_us)
{
	struct timeshare_usage *u = &timeshare->clients[client].usage;
	struct timeshare_gpu_usage *gu = &timeshare->gpus[timeshare->clients[client].gpu].usage;
	bool is_critical = timeshare->clients[client].claim.class == TIMESHARE_CLASS_CRITICAL;
	uint32_t slice = slice_us ? (uint32_t)slice_us : SLICE_NONE;

	if (u->is_present == is_present && u->slice_us == slice && u->is_critical == is_critical)
		return;
	usage_advance(timeshare, timeshare->clients[client].gpu);
	usage_set_absent(timeshare, client);
	u->slice_us = slice;
	if (u->is_critical != is_critical) {
		/* The next report corrects the time in the new class, so it moves there. */
		gu->class_ns[u->is_critical] -= u->given_ns;
		gu->class_ns[is_critical] += u->given_ns;
		gu->unsure_ns[u->is_critical] -= u->given_ns;
		gu->unsure_ns[is_critical] += u->given_ns;
	}
	u->is_critical = is_critical;
	if (is_present)
		usage_set_present(timeshare, client);
}

/* Sets the time since the last report to right_ns. More comes only from time that no client has. */
static void usage_correct(struct timeshare_gpu_usage *gu, struct timeshare_usage *u,
			  uint64_t right_ns)
{
	uint64_t left_ns = gu->wall_ns - gu->given_ns;

	if (right_ns > u->given_ns) {
		right_ns -= u->given_ns;
		right_ns = right_ns < left_ns ? right_ns : left_ns;
		usage_give(gu, u, right_ns);
		gu->given_ns += right_ns;
		return;
	}
	right_ns = u->given_ns - right_ns;
	u->gpu_ns -= right_ns;
	u->given_ns -= right_ns;
	gu->given_ns -= right_ns;
	gu->class_ns[u->is_critical] -= right_ns;
	gu->unsure_ns[u->is_critical] -= right_ns;
}

/* Learns which part of its presence the client is busy. busy_ns: since the last report. */
static void usage_learn(struct timeshare_usage *u, uint64_t busy_ns)
{
	uint64_t part = busy_ns / (u->present_ns / ONE ? u->present_ns / ONE : 1);

	part = (u->part + part) / 2;
	u->part = (uint32_t)(part < PART_MIN ? PART_MIN : part < ONE ? part : ONE);
}

/* The part of busy_ns that it had by the slices: given_ns of the busy time that was expected. */
static uint64_t usage_by_slices(struct timeshare_usage *u, uint64_t busy_ns, uint64_t expected_ns)
{
	uint64_t use_ppm = u->given_ns * 1000 / (expected_ns / 1000 ? expected_ns / 1000 : 1);

	use_ppm = use_ppm < TIMESHARE_PPM ? use_ppm : TIMESHARE_PPM;
	u->use_ppm = (uint32_t)((u->use_ppm + use_ppm) / 2);
	return busy_ns / 1000 * use_ppm / 1000;
}

/*
 * The part of more_ns, which cannot have been since the last report, that is given later. Before
 * the first report it is none.
 */
static uint64_t usage_owed(uint64_t last_ns, uint64_t more_ns)
{
	return last_ns ? u64_min(more_ns, OWED_MAX) : 0;
}

void usage_burst_begins(struct timeshare *timeshare, uint32_t gpu)
{
	struct timeshare_gpu_usage *gu = &timeshare->gpus[gpu].usage;

	gu->burst_ns = timeshare->now_ns;
	gu->burst_end_ns = UINT64_MAX;
}

void usage_burst_ends(struct timeshare *timeshare, uint32_t gpu, uint64_t end_ns)
{
	struct timeshare_gpu_usage *gu = &timeshare->gpus[gpu].usage;

	gu->burst_end_ns = u64_min(gu->burst_end_ns, end_ns);
}

void usage_held(struct timeshare *timeshare, uint32_t client, uint64_t ns)
{
	struct timeshare_client *c = &timeshare->clients[client];
	const struct timeshare_gpu_usage *gu = &timeshare->gpus[c->gpu].usage;
	uint64_t from_ns = timeshare->now_ns - u64_min(ns, timeshare->now_ns);
	uint64_t to_ns = u64_min(timeshare->now_ns - u64_min(STOPS_NS, ns / 2), gu->burst_end_ns);

	from_ns = gu->burst_ns > from_ns ? gu->burst_ns : from_ns;
	if (c->claim.class != TIMESHARE_CLASS_CRITICAL && gu->burst_ns && to_ns > from_ns)
		c->usage.unseen_ns += to_ns - from_ns;
}

/*
 * The time in ran_ns that was not the client's own. Its looks miss the time in which it is being
 * held, and count its usual part there (unseen_ns).
 */
static uint64_t usage_not_its_own(const struct timeshare_usage *u, uint64_t held_ns,
				  uint64_t ran_ns, uint64_t passed_ns)
{
	uint64_t free_ns = passed_ns - u64_min(held_ns - u->held_ns, passed_ns);
	uint64_t new_us = u64_min(ran_ns - u->heard_ns, free_ns) / 1000, free_us = free_ns / 1000;
	uint64_t unseen_us = u64_min(u->unseen_ns, free_ns) / 1000;

	/* new_us / free_us is the part of the time that it runs while it is not held. */
	return free_us && free_us < UINT32_MAX ? unseen_us * new_us / free_us * 1000 : 0;
}

void usage_report(struct timeshare *timeshare, uint32_t client, uint64_t busy_ns, uint64_t held_ns,
		  uint64_t ran_ns)
{
	struct timeshare_client *c = &timeshare->clients[client];
	struct timeshare_usage *u = &c->usage;
	uint64_t passed_ns = timeshare->now_ns - u->report_ns, new_ns, right_ns, expected_ns;
	bool was_present = u->is_present, is_known = ran_ns > 0;

	if (busy_ns < u->busy_ns || held_ns < u->held_ns || (is_known && ran_ns < u->ran_ns))
		return;
	new_ns = u64_min(busy_ns - u->busy_ns, passed_ns);
	usage_advance(timeshare, c->gpu);
	usage_set_absent(timeshare, client);
	expected_ns = u->present_ns / ONE * u->part;
	right_ns = new_ns;
	if (expected_ns > 0 && u->given_ns > 0) {
		right_ns = u64_min(usage_by_slices(u, new_ns, expected_ns), new_ns);
		usage_learn(u, new_ns);
	}
	if (is_known && u->ran_ns)
		u->ran_ns += u64_min(usage_not_its_own(u, held_ns, ran_ns, passed_ns),
				     ran_ns - u->ran_ns);
	if (is_known)
		right_ns = u64_min(ran_ns - u->ran_ns, passed_ns);
	usage_correct(&timeshare->gpus[c->gpu].usage, u, right_ns);
	u->busy_ns = busy_ns - usage_owed(u->busy_ns, busy_ns - u->busy_ns - new_ns);
	if (is_known)
		u->ran_ns = ran_ns - usage_owed(u->ran_ns, ran_ns - u->ran_ns - u->given_ns);
	u->heard_ns = ran_ns;
	u->held_ns = held_ns;
	u->report_ns = timeshare->now_ns;
	usage_confirm(&timeshare->gpus[c->gpu].usage, u);
	u->present_ns = 0;
	u->unseen_ns = 0;
	if (was_present)
		usage_set_present(timeshare, client);
}

uint64_t usage_ns(const struct timeshare *timeshare, uint32_t client)
{
	const struct timeshare_client *c = &timeshare->clients[client];
	const struct timeshare_gpu_usage *gu = &timeshare->gpus[c->gpu].usage;

	return c->usage.gpu_ns + (c->usage.is_present ? usage_drawn_ns(gu, &c->usage) : 0);
}

uint64_t usage_sure_ns(const struct timeshare *timeshare, uint32_t client)
{
	const struct timeshare_usage *u = &timeshare->clients[client].usage;

	return u->gpu_ns - u->given_ns;
}

uint64_t usage_class_ns(const struct timeshare *timeshare, uint32_t gpu, bool is_critical)
{
	const struct timeshare_gpu_usage *gu = &timeshare->gpus[gpu].usage;

	return gu->class_ns[is_critical] - gu->unsure_ns[is_critical];
}

uint64_t usage_known_ns(const struct timeshare *timeshare, uint32_t gpu)
{
	const struct timeshare_gpu_usage *gu = &timeshare->gpus[gpu].usage;

	return gu->at_ns ? gu->wall_ns + (timeshare->now_ns - gu->at_ns) : 0;
}
