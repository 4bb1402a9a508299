/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/gangs.h"

#include "daemon/settings/settings.h"
#include "server_rig.h"
#include "util/log.h"
#include "util/prng.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define N_CLIENTS 4096
#define N_NAMES   64
#define N_STEPS   200000

/* More keys in a bucket than chance puts there. */
#define CHAIN_MAX 24

static struct gangs *gangs;

static int set_up(void **state)
{
	(void)state;
	gangs = calloc(1, sizeof(*gangs));
	return gangs ? gangs_init(gangs, N_CLIENTS + 1) : -1;
}

static int tear_down(void **state)
{
	(void)state;
	gangs_deinit(gangs);
	free(gangs);
	return 0;
}

static struct gang_key key_of(uint32_t name)
{
	struct gang_key key;

	memset(&key, 0, sizeof(key));
	(void)snprintf(key.name, NVSHARE_GANG_LEN, "%u", name);
	return key;
}

static uint32_t add(uint32_t name, uint32_t size)
{
	struct gang_key key = key_of(name);

	return gangs_add(gangs, &key, size);
}

/* ---- the table ---------------------------------------------------------------- */

static void a_gang_is_seen_when_it_is_more_than_one(void **state)
{
	uint32_t place = add(1, 0);

	(void)state;
	assert_false(gangs_is_shown(&gangs->at[place]));
	assert_int_equal(gangs->at[place].number, 0);
	assert_int_equal(add(1, 0), place);
	assert_true(gangs_is_shown(&gangs->at[place]));
	assert_int_equal(gangs->at[place].number, 1);
	assert_int_equal(gangs->n_shown_members, 2);
	gangs_remove(gangs, place);
	assert_false(gangs_is_shown(&gangs->at[place]));
	assert_int_equal(gangs->n_shown + gangs->n_shown_members, 0);
	gangs_resize(gangs, place, 1);
	assert_false(gangs_is_shown(&gangs->at[place]));
	gangs_resize(gangs, place, 2);
	assert_true(gangs_is_shown(&gangs->at[place]));
	assert_int_equal(gangs->at[place].number, 1);
	gangs_remove(gangs, place);
	assert_int_equal(gangs->at[place].n_members, 0);
	assert_false(gangs_is_shown(&gangs->at[place]));
}

static void a_place_is_used_again_and_a_number_never(void **state)
{
	uint32_t place = add(1, 2);

	(void)state;
	for (uint32_t i = 1; i <= 100; i++) {
		assert_int_equal(gangs->at[place].number, i);
		gangs_remove(gangs, place);
		assert_int_equal(add(i + 1, 2), place);
	}
	assert_int_equal(gangs->n_used, 1);
}

/* What the table must say of a name. */
struct model {
	uint32_t n_members, size;
};

static void assert_like(const struct model models[N_NAMES], const uint32_t places[N_NAMES])
{
	uint32_t n_shown = 0, n_members = 0;

	for (uint32_t i = 0; i < N_NAMES; i++) {
		const struct gang *gang = &gangs->at[places[i]];
		bool is_shown =
			models[i].n_members > 1 || (models[i].n_members == 1 && models[i].size > 1);

		if (!models[i].n_members)
			continue;
		assert_int_equal(gang->n_members, models[i].n_members);
		assert_int_equal(gang->size, models[i].size);
		assert_int_equal(gangs_is_shown(gang), is_shown);
		assert_true(!is_shown || gang->number);
		n_shown += is_shown;
		n_members += is_shown ? models[i].n_members : 0;
		for (uint32_t j = 0; j < i; j++)
			assert_true(!models[j].n_members || places[j] != places[i]);
	}
	assert_int_equal(gangs->n_shown, n_shown);
	assert_int_equal(gangs->n_shown_members, n_members);
}

static void any_order_of_joins_and_leaves_is_counted(void **state)
{
	struct model models[N_NAMES] = {{0}};
	uint32_t places[N_NAMES] = {0};
	uint64_t random = 1;

	(void)state;
	for (uint32_t i = 0; i < N_STEPS; i++) {
		uint32_t name = (uint32_t)prng_below(&random, N_NAMES);
		struct model *model = &models[name];
		uint32_t size = (uint32_t)prng_below(&random, 4);

		if (prng_below(&random, 2)) {
			uint32_t place = add(name, size);

			assert_true(!model->n_members || place == places[name]);
			places[name] = place;
			model->n_members++;
			model->size = size;
		} else if (model->n_members) {
			gangs_remove(gangs, places[name]);
			model->n_members--;
		}
		if (i % 64 == 0)
			assert_like(models, places);
	}
	assert_true(gangs->n_used <= N_NAMES);
}

static void no_bucket_has_many(void **state)
{
	uint32_t places[N_CLIENTS];

	(void)state;
	for (uint32_t i = 0; i < N_CLIENTS; i++)
		places[i] = add(i, 2);
	for (uint32_t i = 0; i < GANGS_BUCKETS; i++) {
		uint32_t n = 0;

		for (uint32_t j = gangs->buckets[i]; j; j = gangs->at[j - 1].next)
			n++;
		assert_true(n < CHAIN_MAX);
	}
	for (uint32_t i = 0; i < N_CLIENTS; i++)
		gangs_remove(gangs, places[i]);
	for (uint32_t i = 0; i < GANGS_BUCKETS; i++)
		assert_int_equal(gangs->buckets[i], 0);
}

static void another_start_has_another_secret(void **state)
{
	struct gangs *other = calloc(1, sizeof(*other));

	(void)state;
	assert_non_null(other);
	assert_int_equal(gangs_init(other, 1), 0);
	assert_int_not_equal(other->point, gangs->point);
	gangs_deinit(other);
	free(other);
}

/* ---- clients ------------------------------------------------------------------ */

static struct server_rig rig;

static int start(void **state)
{
	static struct settings options;

	(void)state;
	log_open("nvshare-scheduler", LOG_LEVEL_INFO, open("/dev/null", O_WRONLY | O_CLOEXEC));
	settings_default(&options);
	options.http.n = 0; /* others may have the address */
	return server_rig_start(&rig, &options);
}

static int stop(void **state)
{
	(void)state;
	return server_rig_stop(&rig);
}

/* A client of this process, with the values by which the kernel tells users apart. */
static struct peer *client(uint32_t slot, uint32_t owner, uid_t uid, const char *pod)
{
	static struct user user;
	struct peer *peer = &rig.server->peers[slot];

	*peer = (struct peer){
		.state = PEER_STATE_CLIENT,
		.slot = slot,
		.id = slot + 1,
		.fd = -1,
		.pidfd = -1,
		.user = &user,
		.pod.owner = owner,
		.cred = {getpid(), uid, 1},
	};
	(void)snprintf(peer->pod.group.uid, sizeof(peer->pod.group.uid), "%s", pod);
	return peer;
}

static uint32_t take(struct peer *peer, const char *name)
{
	struct nvshare_gang body = {.size = 2};

	/* Behind the name there may be anything. */
	memset(body.name, 'a' + (int)peer->slot, sizeof(body.name));
	(void)snprintf(body.name, sizeof(body.name), "%s", name);
	gangs_take(rig.server, peer, &body);
	return peer->gang;
}

static void users_and_pods_are_apart(void **state)
{
	uint32_t mine = take(client(0, 1000, 1000, ""), "train");

	(void)state;
	assert_int_equal(take(client(1, 1000, 1000, ""), "train"), mine);
	assert_int_not_equal(take(client(2, 1001, 1001, ""), "train"), mine);
	assert_int_not_equal(take(client(3, 1000, 1000, "pod-a"), "train"), mine);
	/* Two pods of one namespace, and two users in one of them. */
	mine = take(client(4, PODS_OWNER_FIRST, 1000, "pod-a"), "train");
	assert_int_equal(take(client(5, PODS_OWNER_FIRST, 1000, "pod-a"), "train"), mine);
	assert_int_not_equal(take(client(6, PODS_OWNER_FIRST, 1000, "pod-b"), "train"), mine);
	assert_int_not_equal(take(client(7, PODS_OWNER_FIRST, 1001, "pod-a"), "train"), mine);
	assert_int_not_equal(take(client(8, PODS_OWNER_FIRST + 1, 1000, "pod-a"), "train"), mine);
	for (uint32_t i = 0; i < 9; i++)
		gangs_forget(rig.server, &rig.server->peers[i]);
	assert_int_equal(rig.server->gangs.n_shown, 0);
}

/* The socket of no connection tells no process: as one of a pid namespace that is not seen here. */
static void processes_that_nobody_knows_share_nothing(void **state)
{
	struct peer *a = client(0, 1000, 1000, ""), *b = client(1, 1000, 1000, "");

	(void)state;
	assert_int_not_equal(take(a, ""), take(b, ""));
	assert_int_equal(take(a, "train"), take(b, "train"));
	assert_int_equal(rig.server->gangs.n_shown, 1);
	gangs_forget(rig.server, a);
	gangs_forget(rig.server, b);
}

static void the_core_is_asked_once_for_all_members(void **state)
{
	struct nvshare_status_gang body;
	struct peer *a = client(0, 1000, 1000, ""), *b = client(1, 1000, 1000, "");
	uint64_t ticket = snapshot_ask(&rig.server->tools.snapshot);
	struct gang *gang;

	(void)state;
	assert_false(gangs_fill(rig.server, a, ticket, &body));
	assert_int_equal(take(a, "a"), take(b, "a"));
	gang = &rig.server->gangs.at[a->gang - 1];
	assert_true(gangs_fill(rig.server, a, ticket, &body));
	assert_int_equal(body.flags, 0);
	/* What it has said then stays until somebody else asks, or the gang changes. */
	gang->status.is_apart = true;
	assert_true(gangs_fill(rig.server, b, ticket, &body));
	assert_int_equal(body.flags, NVSHARE_GANG_APART);
	assert_int_equal(body.n_members, 2);
	ticket = snapshot_ask(&rig.server->tools.snapshot);
	assert_true(gangs_fill(rig.server, b, ticket, &body));
	assert_int_equal(body.flags, 0);
	gangs_forget(rig.server, a);
	gangs_forget(rig.server, b);
	assert_false(gangs_fill(rig.server, b, ticket, &body));
}

int main(void)
{
	const struct CMUnitTest table_tests[] = {
		cmocka_unit_test_setup_teardown(a_gang_is_seen_when_it_is_more_than_one, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_place_is_used_again_and_a_number_never, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(any_order_of_joins_and_leaves_is_counted, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(no_bucket_has_many, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_start_has_another_secret, set_up,
						tear_down),
	};
	const struct CMUnitTest client_tests[] = {
		cmocka_unit_test(users_and_pods_are_apart),
		cmocka_unit_test(processes_that_nobody_knows_share_nothing),
		cmocka_unit_test(the_core_is_asked_once_for_all_members),
	};
	int r = cmocka_run_group_tests(table_tests, NULL, NULL);

	return r + cmocka_run_group_tests(client_tests, start, stop);
}
