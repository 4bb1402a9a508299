/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Compute time and bus time, shared by the node's processes. Compute time is modelled.
 *
 * Processes get the compute token in the order of their requests. It is a lease that each step
 * renews, however long the host takes for a slice. If the holder is stopped, the next process takes
 * the token after the deadline; the old holder then computes at most one step beside the new one.
 * If the holder is killed, the next request ends its lease.
 */

#include "simgpu/node/node.h"

#include "util/clock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LEASE_NS = 1000000000 }; /* far longer than a busy host takes for a step */

static uint32_t my_owner_id(void)
{
	return (uint32_t)(node_view.self - node_view.shared->proc) + 1;
}

/* No FUTEX_PRIVATE_FLAG, because processes share the wake words. */
static void wake_process(struct node_proc *proc)
{
	__atomic_fetch_add(&proc->wake, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &proc->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void node_wake_self(void)
{
	if (node_view.self)
		wake_process(node_view.self);
}

void node_wait(uint32_t seen, uint64_t until_ns)
{
	struct timespec t = {
		.tv_sec = (time_t)(until_ns / 1000000000u),
		.tv_nsec = (long)(until_ns % 1000000000u),
	};

	/* WAIT_BITSET takes an absolute CLOCK_MONOTONIC time. */
	syscall(SYS_futex, &node_view.self->wake, FUTEX_WAIT_BITSET, seen,
		until_ns == UINT64_MAX ? NULL : &t, NULL, FUTEX_BITSET_MATCH_ANY);
}

static struct node_proc *next_in_queue(unsigned int device)
{
	struct node_proc *proc, *best = NULL;
	unsigned int i;

	for (i = 0; i < node_view.shared->n_slots; i++) {
		proc = &node_view.shared->proc[i];
		if (!proc->pid || !proc->device[device].ticket)
			continue;
		if (!best || proc->device[device].ticket < best->device[device].ticket)
			best = proc;
	}
	return best;
}

/* Nobody has: until now the device's time has passed with the host's. */
static void begin_computing(struct node_device *dev)
{
	uint64_t now = clock_now_ns();

	if (dev->spent_until_ns < now)
		__atomic_store_n(&dev->spent_until_ns, now, __ATOMIC_RELAXED);
}

static void give_token(unsigned int device, struct node_proc *proc)
{
	struct node_device *dev = &node_view.shared->device[device];

	dev->token_owner = (uint32_t)(proc - node_view.shared->proc) + 1;
	dev->token_deadline_ns = clock_now_ns() + LEASE_NS;
	proc->device[device].ticket = 0;
}

/*
 * The owner if it is dead, else 0. Called without the lock, because it takes long: a process
 * that is stopped with the lock would stop all others. If the slot changes meanwhile, its new
 * owner may compute one step beside another process.
 */
static uint32_t dead_owner(const struct node_device *dev)
{
	uint32_t owner = __atomic_load_n(&dev->token_owner, __ATOMIC_RELAXED);

	if (!owner || owner == my_owner_id())
		return 0;
	return node_proc_is_alive(&node_view.shared->proc[owner - 1]) ? 0 : owner;
}

bool node_token_try(unsigned int device)
{
	struct node_device *dev = &node_view.shared->device[device];
	uint32_t dead = dead_owner(dev);
	struct node_proc *next;
	bool is_mine;

	node_lock();
	if (dev->token_owner && dev->token_owner != my_owner_id() &&
	    (clock_now_ns() > dev->token_deadline_ns || dev->token_owner == dead))
		dev->token_owner = 0;
	if (!dev->token_owner) {
		begin_computing(dev);
		next = next_in_queue(device);
		/* A dead process in the queue must not keep living ones from their turn. */
		if (next && next != node_view.self && !node_proc_is_alive(next)) {
			next->pid = 0;
			next = next_in_queue(device);
		}
		if (!next || next == node_view.self)
			give_token(device, node_view.self);
		else
			give_token(device, next), wake_process(next);
	}
	is_mine = dev->token_owner == my_owner_id();
	if (!is_mine && !node_view.self->device[device].ticket)
		node_view.self->device[device].ticket = ++dev->tickets;
	node_unlock();
	return is_mine;
}

bool node_token_is_mine(unsigned int device)
{
	const uint32_t *owner = &node_view.shared->device[device].token_owner;

	return __atomic_load_n(owner, __ATOMIC_RELAXED) == my_owner_id();
}

bool node_token_yield(unsigned int device)
{
	struct node_device *dev = &node_view.shared->device[device];
	struct node_proc *next;
	bool is_mine;

	node_lock();
	next = next_in_queue(device);
	if (dev->token_owner == my_owner_id() && next && next != node_view.self) {
		node_view.self->device[device].ticket = ++dev->tickets;
		give_token(device, next);
		wake_process(next);
	} else if (dev->token_owner == my_owner_id()) {
		give_token(device, node_view.self);
	}
	is_mine = dev->token_owner == my_owner_id();
	node_unlock();
	return is_mine;
}

void node_token_drop(unsigned int device)
{
	struct node_device *dev = &node_view.shared->device[device];
	struct node_proc *next;

	if (!node_view.self)
		return;
	node_lock();
	node_view.self->device[device].ticket = 0;
	if (dev->token_owner == my_owner_id()) {
		dev->token_owner = 0;
		next = next_in_queue(device);
		if (next) {
			give_token(device, next);
			wake_process(next);
		}
	}
	node_unlock();
}

uint64_t node_copy_book(unsigned int device, enum node_direction direction, uint64_t bytes)
{
	uint64_t *end = &node_view.shared->device[device].copies_end_ns[direction];
	uint64_t now = clock_now_ns(), old = __atomic_load_n(end, __ATOMIC_RELAXED), start, done;
	double ns = (double)bytes * 1e9 / (double)node_view.shared->config.bandwidth;

	do {
		start = old > now ? old : now;
		done = start + (uint64_t)ns;
	} while (!__atomic_compare_exchange_n(end, &old, done, true, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	return done;
}

/*
 * Without the lock: a process that is stopped with the lock stops all others, and statistics
 * are not worth that risk.
 */
static void load_add(struct node_load *load, uint64_t now_ns, uint64_t ns)
{
	uint64_t stamp = now_ns / 1000000u / NODE_LOAD_BUCKET_MS;
	unsigned int i = (unsigned int)(stamp % NODE_LOAD_BUCKETS);

	if (__atomic_exchange_n(&load->stamp[i], stamp, __ATOMIC_RELAXED) != stamp)
		__atomic_store_n(&load->busy_ns[i], 0, __ATOMIC_RELAXED);
	__atomic_fetch_add(&load->busy_ns[i], ns, __ATOMIC_RELAXED);
}

uint64_t node_gpu_until(unsigned int device)
{
	return __atomic_load_n(&node_view.shared->device[device].spent_until_ns, __ATOMIC_RELAXED);
}

uint64_t node_gpu_time(unsigned int device)
{
	const struct node_device *dev = &node_view.shared->device[device];
	uint64_t until = node_gpu_until(device), now = clock_now_ns();
	bool is_computing = __atomic_load_n(&dev->token_owner, __ATOMIC_RELAXED) != 0;

	return (is_computing || until > now ? until : now) -
	       __atomic_load_n(&dev->late_ns, __ATOMIC_RELAXED);
}

uint64_t node_gpu_spend(unsigned int device, uint64_t ns)
{
	struct node_proc_device *mine = &node_view.self->device[device];
	struct node_device *dev = &node_view.shared->device[device];
	uint64_t until = node_gpu_until(device) + ns, now = clock_now_ns(), time;

	if (until < now) {
		__atomic_fetch_add(&dev->late_ns, now - until, __ATOMIC_RELAXED);
		until = now;
	}
	__atomic_store_n(&dev->spent_until_ns, until, __ATOMIC_RELAXED);
	if (node_token_is_mine(device))
		__atomic_store_n(&dev->token_deadline_ns, now + LEASE_NS, __ATOMIC_RELAXED);
	time = until - __atomic_load_n(&dev->late_ns, __ATOMIC_RELAXED);
	if (!ns)
		return time;
	__atomic_fetch_add(&dev->busy_ns, ns, __ATOMIC_RELAXED);
	__atomic_fetch_add(&mine->busy_ns, ns, __ATOMIC_RELAXED);
	load_add(&dev->load, time, ns);
	load_add(&mine->load, time, ns);
	return time;
}

double node_load_ratio(const struct node_load *load, uint64_t now_ns, uint64_t window_ns)
{
	uint64_t now = now_ns / 1000000u / NODE_LOAD_BUCKET_MS, busy = 0;
	uint64_t n = window_ns / 1000000u / NODE_LOAD_BUCKET_MS;
	double ratio;
	unsigned int i;

	if (n < 1)
		n = 1;
	if (n > NODE_LOAD_BUCKETS - 1)
		n = NODE_LOAD_BUCKETS - 1;
	for (i = 0; i < NODE_LOAD_BUCKETS; i++)
		if (__atomic_load_n(&load->stamp[i], __ATOMIC_RELAXED) <= now &&
		    __atomic_load_n(&load->stamp[i], __ATOMIC_RELAXED) + n > now)
			busy += __atomic_load_n(&load->busy_ns[i], __ATOMIC_RELAXED);
	ratio = (double)busy / ((double)n * NODE_LOAD_BUCKET_MS * 1e6);
	return ratio > 1 ? 1 : ratio;
}
