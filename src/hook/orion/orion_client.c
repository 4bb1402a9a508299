/* SPDX-License-Identifier: Apache-2.0 */

/* The client of a thread. */

#include "hook/orion/orion_private.h"

#include "util/clock.h"

#include <errno.h>

static __thread int client_index __attribute__((tls_model("initial-exec"))) = ORION_NO_CLIENT;

/* Its destructor tells that a thread has ended. pthread_once() guards it. */
static struct {
	pthread_once_t once;
	bool is_made;
	pthread_key_t key;
} client_key = {.once = PTHREAD_ONCE_INIT};

/*
 * Under the lock. The thread has ended, or has got another index. High priority's last one ends its
 * presence. The policy hears of no other end, because threads without an index may wait for that
 * client.
 */
static void client_leave(int idx)
{
	struct orion_policy_event event = {
		.type = ORION_POLICY_EVENT_END,
		.client = ORION_POLICY_HP,
		.now_ns = clock_now_ns(),
	};

	if (--orion.clients[idx].n_threads == 0 && idx == (int)ORION_POLICY_HP &&
	    orion.is_policy_ready)
		(void)orion_step(&event);
}

static void client_on_thread_end(void *arg)
{
	(void)arg;
	hook_lock(&orion.lock);
	if (client_index != ORION_NO_CLIENT)
		client_leave(client_index);
	client_index = ORION_NO_CLIENT;
	hook_unlock(&orion.lock);
}

static void client_make_key(void)
{
	client_key.is_made = pthread_key_create(&client_key.key, client_on_thread_end) == 0;
}

int orion_thread_client(void)
{
	return client_index;
}

void orion_thread_forget(void)
{
	client_index = ORION_NO_CLIENT;
}

int orion_set_client_idx(int idx)
{
	int saved_errno = errno;

	if (idx < ORION_NO_CLIENT || idx >= ORION_CLIENTS_MAX)
		return -EINVAL;
	(void)pthread_once(&client_key.once, client_make_key);
	/* Without a key the client stays present after its thread's end, for a second. */
	if (client_key.is_made)
		(void)pthread_setspecific(client_key.key, idx == ORION_NO_CLIENT ? NULL : &orion);
	hook_lock(&orion.lock);
	if (orion.state != ORION_OFF && idx >= (int)orion.n_clients) {
		hook_unlock(&orion.lock);
		errno = saved_errno;
		return -EINVAL;
	}
	/* The new index counts first: the same one again is no end. */
	if (idx != ORION_NO_CLIENT)
		orion.clients[idx].n_threads++;
	if (client_index != ORION_NO_CLIENT)
		client_leave(client_index);
	client_index = idx;
	hook_unlock(&orion.lock);
	errno = saved_errno;
	return 0;
}

int orion_get_client_idx(void)
{
	return client_index;
}
