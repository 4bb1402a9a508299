/* SPDX-License-Identifier: Apache-2.0 */

/* The opener's side of memory that leaves the card with its owner. */

#include "hook/tickets/opened_private.h"

#include "hook/base/hook_log.h"
#include "hook/gate/device.h"
#include "util/clock.h"

/*
 * A scheduler that has had a ticket forgets it when its owner ends or frees it. It also forgets the
 * ticket when the owner's pair is cut, and the owner then leaves it again at once.
 */
#define GONE_NS (5 * CLOCK_NS_PER_SEC)
/*
 * A scheduler that has started since the ticket was left knows nothing of its owner. The owner may
 * stand still (SIGSTOP), or find no room with this scheduler, and has the bytes all the same. It
 * may also have ended while no scheduler ran, and no later word would say so.
 */
#define UNHEARD_NS (300 * CLOCK_NS_PER_SEC)

void opened_hear_park(const uint8_t *ticket)
{
	hook_lock(&opened.lock);
	for (struct opened *o = opened.first; o; o = o->next)
		o->is_park_wanted = o->is_park_wanted || opened_is_of(o, ticket);
	hook_unlock(&opened.lock);
}

/* One that is to be unmapped, busy then. */
static struct opened *opened_claim_to_park(void)
{
	struct opened *o;

	hook_lock(&opened.lock);
	for (o = opened.first; o && (o->is_busy || !o->is_park_wanted);)
		o = o->next;
	if (o) {
		o->is_busy = true;
		o->is_park_wanted = false;
		o->is_parked = true;
	}
	hook_unlock(&opened.lock);
	return o;
}

/*
 * Another one of its ticket is mapped, in another context, or may be in a moment. A thread at the
 * closed gate may stay there as long as the memory is away.
 */
static bool opened_is_mapped_elsewhere(const struct opened *o)
{
	bool is_mapped = false;

	hook_lock(&opened.lock);
	for (const struct opened *other = opened.first; other; other = other->next) {
		if (other != o && opened_is_of(other, o->ticket))
			is_mapped = is_mapped || other->is_inside || other->n_mapped;
	}
	hook_unlock(&opened.lock);
	return is_mapped;
}

/* A thread that opens the ticket anew waits until the scheduler knows. */
void opened_park(void)
{
	struct opened *o;

	if (!__atomic_load_n(&opened.n, __ATOMIC_ACQUIRE))
		return;
	while ((o = opened_claim_to_park())) {
		if (opened_unmap_chunks(o) && !opened_is_mapped_elsewhere(o))
			opened_tell(o->ticket, TICKET_PARK);
		(void)opened_done(o, false);
	}
}

static bool opened_set_parked(struct opened *o, bool is_parked)
{
	hook_lock(&opened.lock);
	o->is_parked = is_parked;
	hook_unlock(&opened.lock);
	return !is_parked;
}

/* The scheduler has no such ticket. */
static bool opened_is_lost(const struct opened *o)
{
	uint64_t unknown_ns = clock_now_ns() - o->unknown_ns;

	if (!o->is_unheard)
		return unknown_ns >= GONE_NS;
	hook_warn_once("this program waits for GPU memory of another one, which it has open "
		       "(cuIpcOpenMemHandle): nvshare-scheduler was restarted, and has not heard "
		       "of that memory yet; after %u seconds it counts as lost",
		       (unsigned int)(UNHEARD_NS / CLOCK_NS_PER_SEC));
	return unknown_ns >= UNHEARD_NS;
}

static void opened_lose(struct opened *o)
{
	(void)opened_unmap_chunks(o);
	hook_warn_once("GPU memory of another program, which this one has open "
		       "(cuIpcOpenMemHandle), was off the card when that program freed it or "
		       "ended, and is lost: work that uses it fails");
}

/* Maps a parked one that is busy for the caller. false: it is not there yet. */
static bool opened_map_again(struct opened *o)
{
	enum opened_wait wait;
	CUresult res = opened_ask_all(o, &wait);
	bool is_lost = wait == OPENED_WAIT_UNKNOWN && opened_is_lost(o);

	if (res != CUDA_SUCCESS && wait == OPENED_WAIT_NOT)
		hook_warn_once("GPU memory of another program, which this one has open "
			       "(cuIpcOpenMemHandle), could not be mapped again (error %d): this "
			       "program waits, and tries again",
			       (int)res);
	if (res != CUDA_SUCCESS && !is_lost)
		return false;
	if (is_lost)
		opened_lose(o);
	opened_allow_all_peers(o);
	return opened_set_parked(o, false);
}

/* A parked one that was not tried in this round, busy then. *ret_is_busy: a thread has another. */
static struct opened *opened_claim_parked(CUdevice dev, uint64_t round, bool *ret_is_busy)
{
	struct opened *o;

	hook_lock(&opened.lock);
	for (o = opened.first; o; o = o->next) {
		if (!o->is_parked || o->dev != dev || o->returned == round)
			continue;
		*ret_is_busy = *ret_is_busy || o->is_busy;
		if (!o->is_busy)
			break;
	}
	if (o) {
		o->is_busy = true;
		o->is_park_wanted = false;
		o->returned = round;
	}
	hook_unlock(&opened.lock);
	return o;
}

bool opened_return(CUdevice dev)
{
	bool is_back = true, is_busy = false;
	struct opened *o;

	if (!__atomic_load_n(&opened.n, __ATOMIC_ACQUIRE))
		return true;
	opened.n_returns++;
	while ((o = opened_claim_parked(dev, opened.n_returns, &is_busy))) {
		is_back = opened_map_again(o) && is_back;
		(void)opened_done(o, false);
	}
	return is_back && !is_busy;
}

static bool opened_is_any(CUdevice dev, bool is_parked)
{
	bool is_any = false;

	if (!__atomic_load_n(&opened.n, __ATOMIC_ACQUIRE))
		return false;
	hook_lock(&opened.lock);
	for (const struct opened *o = opened.first; o; o = o->next) {
		is_any = is_any ||
			 ((dev == DEVICE_ANY || o->dev == dev) && (o->is_parked || !is_parked));
	}
	hook_unlock(&opened.lock);
	return is_any;
}

bool opened_is_parked(CUdevice dev)
{
	return opened_is_any(dev, true);
}

bool opened_is_there(CUdevice dev)
{
	return opened_is_any(dev, false);
}
