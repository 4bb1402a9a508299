/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the ring of things that happened costs a hand-over. Two clients take turns: the messages
 * go over a socket, are decoded, the core decides, and the answers are encoded and sent. RUNS times
 * with the ring and without it, in turns; the least of each counts.
 *
 * The target: at most 1.02 times as long with the ring.
 */

#include "core/sched.h"
#include "daemon/tools/trace.h"
#include "ipc/msg.h"
#include "ipc/sock.h"
#include "timing.h"
#include "util/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#define HAND_OVERS 20000
#define RUNS       21

static struct sched sched;
static struct sched_client clients[2];
static struct trace trace;
static int ends[2];
static uint64_t now_ns;

static void add(bool is_on, uint32_t client, uint8_t kind, uint64_t value)
{
	if (is_on)
		trace_add(&trace,
			  &(struct nvshare_trace_entry){
				  .at_ns = now_ns, .client = client, .kind = kind, .value = value});
}

/* Over the socket, and into a message again. */
static void pass(uint16_t type, enum msg_to to)
{
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX];
	struct msg msg;
	ssize_t n;

	(void)msg_encode(type, 0, NULL, &msg);
	n = sock_send(ends[0], &msg) ? -1 : sock_recv(ends[1], bytes, sizeof(bytes));
	if (n < 0 || msg_decode(bytes, (size_t)n, to, &msg)) {
		fprintf(stderr, "bench_trace: no message\n");
		exit(1);
	}
}

/* One step, and its answers. Returns the grant of one among them; 0: none. */
static uint64_t step(struct sched_event event, bool is_on)
{
	struct sched_actions actions;
	uint64_t grant = 0;

	event.now_ns = now_ns;
	if (sched_step(&sched, &event, &actions)) {
		fprintf(stderr, "bench_trace: an event is refused\n");
		exit(1);
	}
	for (uint32_t i = 0; i < actions.n; i++) {
		const struct sched_action *action = &actions.at[i];

		if (action->type == SCHED_ACTION_GRANT) {
			pass(NVSHARE_MSG_LOCK_OK, MSG_TO_CLIENT);
			add(is_on, action->client, NVSHARE_TRACE_GRANT, action->budget);
			grant = action->grant;
		} else if (action->type == SCHED_ACTION_WAIT) {
			pass(NVSHARE_MSG_WAIT_FOR_MEM, MSG_TO_CLIENT);
			add(is_on, action->client, NVSHARE_TRACE_WAIT, action->bytes);
		}
	}
	return grant;
}

static double hand_over_ns(bool is_on)
{
	struct sched_event event = {.type = SCHED_EVENT_REQUEST};
	struct sched_config config;
	uint64_t grant, before_ns;

	sched_config_default(&config);
	config.mode = SCHED_MODE_SERIAL;
	sched_init(&sched, clients, 2, &config);
	now_ns = CLOCK_NS_PER_SEC;
	(void)step((struct sched_event){.type = SCHED_EVENT_GPU, .bytes = 1ull << 34}, false);
	for (uint32_t i = 0; i < 2; i++)
		(void)step((struct sched_event){.type = SCHED_EVENT_JOIN,
						.client = i,
						.claim = {.weight = 100}},
			   false);
	grant = step(event, false);
	event.client = 1;
	(void)step(event, false);
	before_ns = timing_cpu_ns();
	for (uint32_t i = 0; i < HAND_OVERS; i++) {
		struct sched_event release = {
			.type = SCHED_EVENT_RELEASED, .client = i % 2, .grant = grant};

		now_ns += CLOCK_NS_PER_MS;
		pass(NVSHARE_MSG_LOCK_RELEASED, MSG_TO_SCHEDULER);
		add(is_on, i % 2, NVSHARE_TRACE_RELEASE, 0);
		grant = step(release, is_on);
		pass(NVSHARE_MSG_REQ_LOCK, MSG_TO_SCHEDULER);
		add(is_on, i % 2, NVSHARE_TRACE_ASK, 0);
		event.client = i % 2;
		(void)step(event, is_on);
	}
	return (double)(timing_cpu_ns() - before_ns) / HAND_OVERS;
}

int main(void)
{
	double least[2] = {0, 0};

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends))
		return 1;
	for (int i = 0; i < 2 * RUNS; i++) {
		double ns = hand_over_ns(i % 2);

		if (i < 2 || ns < least[i % 2])
			least[i % 2] = ns;
	}
	printf("hand-over without the ring %.0f ns, with it %.0f ns: %.3f times (target 1.02)\n",
	       least[0], least[1], least[1] / least[0]);
	return 0;
}
