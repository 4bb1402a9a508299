/* SPDX-License-Identifier: Apache-2.0 */

/* The host pool with slabs: a thread plays the scheduler, and a fake driver has the memory. */

#include "hook/host/hostpool.h"
#include "hook/host/slabs.h"

#include "fake_memory.h"
#include "hook/host/hostmem.h"
#include "ipc/slab_packet.h"
#include "open_files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MIB    (1ull << 20)
#define SLAB   (4 * MIB)
#define N_MAX  64
#define STREAM ((CUstream)1)

/* ---- the driver's part ------------------------------------------------------------ */

static CUresult fake_export(void *shareable, CUmemGenericAllocationHandle handle,
			    CUmemAllocationHandleType type, unsigned long long flags)
{
	(void)flags;
	FAKE_BEGIN();
	assert_int_equal(type, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	*(int *)shareable = fcntl(fake.phys[handle - 1].fd, F_DUPFD, 0);
	return fake_end(CUDA_SUCCESS);
}

static CUresult fake_import(CUmemGenericAllocationHandle *handle, void *shareable,
			    CUmemAllocationHandleType type)
{
	struct fake_phys *phys = fake.phys;

	(void)type;
	FAKE_BEGIN();
	while (phys->size)
		phys++;
	*phys = (struct fake_phys){.fd = fcntl((int)(intptr_t)shareable, F_DUPFD_CLOEXEC, 0),
				   .size = SLAB,
				   .n_handles = 1,
				   .is_host = true};
	assert_true(phys->fd >= 0);
	*handle = (CUmemGenericAllocationHandle)(phys - fake.phys) + 1;
	return fake_end(CUDA_SUCCESS);
}

static CUresult import_no(CUmemGenericAllocationHandle *handle, void *shareable,
			  CUmemAllocationHandleType type)
{
	(void)handle;
	(void)shareable;
	(void)type;
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* What a driver that does not unmap leaves. */
static size_t unmap_all(void)
{
	size_t n = 0;

	for (size_t i = 0; i < FAKE_TABLE; i++) {
		if (!fake.maps[i].addr)
			continue;
		assert_int_equal(fake_unmap((uintptr_t)fake.maps[i].addr, fake.maps[i].size),
				 CUDA_SUCCESS);
		n++;
	}
	for (size_t i = 0; i < FAKE_TABLE; i++) {
		if (fake.phys[i].n_handles)
			assert_int_equal(fake_release(i + 1), CUDA_SUCCESS);
	}
	return n;
}

static CUresult fake_copy(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
	return fake_submit(fake_pointer(dst), fake_pointer(src), size, stream);
}

static size_t n_phys(void)
{
	size_t n = 0;

	for (size_t i = 0; i < FAKE_TABLE; i++)
		n += fake.phys[i].size != 0;
	return n;
}

/* ---- the scheduler's part --------------------------------------------------------- */

/* Under the lock. Its slabs, in the order in which they came. */
static struct {
	pthread_mutex_t lock;
	pthread_t thread;
	int fd;
	uint64_t ids[N_MAX];
	int fds[N_MAX];
	bool is_lent[N_MAX];
	uint32_t n_slabs;
	uint32_t n_may_make;
	uint32_t n_wants, n_offers, n_returns, n_bad, n_unmade;
	uint64_t unused;
	bool is_silent;
} them = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void answer(enum slab_type type, uint32_t n)
{
	struct slab_packet packet;

	slab_packet_init(&packet, type, n, 0);
	if (n)
		assert_int_equal(slab_packet_send(them.fd, &packet, NULL, 0), 0);
}

static void answer_want(uint32_t n)
{
	struct slab_packet packet;
	int fds[N_MAX];
	uint32_t n_make;

	slab_packet_init(&packet, SLAB_LENT, 0, 0);
	for (uint32_t i = 0; i < them.n_slabs && packet.n < n; i++) {
		if (them.is_lent[i])
			continue;
		them.is_lent[i] = true;
		fds[packet.n] = them.fds[i];
		packet.ids[packet.n++] = them.ids[i];
	}
	if (packet.n)
		assert_int_equal(slab_packet_send(them.fd, &packet, fds, packet.n), 0);
	n -= packet.n;
	n_make = n < them.n_may_make ? n : them.n_may_make;
	them.n_may_make -= n_make;
	answer(SLAB_MAY_MAKE, n_make);
	answer(SLAB_NONE, n - n_make);
}

static void forget(uint64_t id, bool is_bad)
{
	for (uint32_t i = 0; i < them.n_slabs; i++) {
		if (them.ids[i] != id)
			continue;
		assert_true(them.is_lent[i]);
		them.is_lent[i] = is_bad;
	}
}

static void offered(const struct slab_packet *packet, struct pass_many *pass)
{
	uint32_t i = 0;

	assert_int_equal(pass->n, 1);
	them.n_offers++;
	while (i < them.n_slabs && them.ids[i] != packet->ids[0])
		i++;
	if (i < them.n_slabs) { /* after a restart */
		pass_many_close(pass);
		return;
	}
	assert_true(i < N_MAX);
	them.ids[i] = packet->ids[0];
	them.fds[i] = pass->fds[0];
	them.is_lent[i] = true;
	them.n_slabs++;
}

static void take(const struct slab_packet *packet, struct pass_many *pass)
{
	if (packet->type == SLAB_OFFER)
		offered(packet, pass);
	if (packet->type == SLAB_WANT)
		them.n_wants++;
	if (packet->type == SLAB_WANT && !them.is_silent)
		answer_want(packet->n);
	if (packet->type == SLAB_UNMADE)
		them.n_unmade += packet->n;
	if (packet->type == SLAB_UNUSED)
		them.unused = packet->bytes;
	for (uint32_t i = 0; i < packet->n && packet->type == SLAB_RETURN; i++, them.n_returns++)
		forget(packet->ids[i], false);
	for (uint32_t i = 0; i < packet->n && packet->type == SLAB_BAD; i++, them.n_bad++)
		forget(packet->ids[i], true);
}

static void *them_run(void *arg)
{
	struct pollfd fd = {.fd = them.fd, .events = POLLIN};
	static struct pass_many pass;
	struct slab_packet packet;
	int r = 0;

	(void)arg;
	while (r != -EPIPE) {
		(void)poll(&fd, 1, -1);
		pthread_mutex_lock(&them.lock);
		r = slab_packet_recv(them.fd, SLAB_FROM_CLIENT, &packet, &pass);
		assert_true(r == 0 || r == -EAGAIN || r == -EPIPE);
		if (r == 0)
			take(&packet, &pass);
		pthread_mutex_unlock(&them.lock);
	}
	return NULL;
}

static void them_start(uint64_t slab_bytes)
{
	int ends[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	them.fd = ends[0];
	assert_int_equal(pthread_create(&them.thread, NULL, them_run, NULL), 0);
	slabs_open(ends[1], slab_bytes, 0);
}

/* All that was sent has been taken then. */
static void them_stop(void)
{
	(void)shutdown(them.fd, SHUT_RD);
	assert_int_equal(pthread_join(them.thread, NULL), 0);
	close(them.fd);
	slabs_receive();
	assert_false(slabs_is_open());
}

static uint32_t n_lent(void)
{
	uint32_t n = 0;

	pthread_mutex_lock(&them.lock);
	for (uint32_t i = 0; i < them.n_slabs; i++)
		n += them.is_lent[i];
	pthread_mutex_unlock(&them.lock);
	return n;
}

/* ---- the tests -------------------------------------------------------------------- */

static size_t n_files_before;

static int setup(void **state)
{
	(void)state;
	fake_setup();
	cuda_real.cuMemExportToShareableHandle = fake_export;
	cuda_real.cuMemImportFromShareableHandle = fake_import;
	cuda_real.cuMemcpyAsync = fake_copy;
	hostmem_set_limit("");
	n_files_before = n_files();
	them.n_slabs = them.n_may_make = 0;
	them.n_wants = them.n_offers = them.n_returns = them.n_bad = them.n_unmade = 0;
	them.is_silent = false;
	slabs_answer_ns = 900 * CLOCK_NS_PER_SEC;
	them_start(SLAB);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_give_back_host_memory();
	assert_int_equal(slabs_bytes(), 0);
	if (slabs_is_open())
		them_stop();
	for (uint32_t i = 0; i < them.n_slabs; i++)
		close(them.fds[i]);
	assert_int_equal(n_phys(), 0);
	assert_int_equal(n_files(), n_files_before);
	fake.options.host_slabs = false;
	return 0;
}

/* As another program has made them. */
static void they_have(uint32_t n)
{
	pthread_mutex_lock(&them.lock);
	for (uint32_t i = 0; i < n; i++) {
		them.ids[i] = i + 1;
		them.fds[i] = memfd_create("slab", MFD_CLOEXEC);
		assert_int_equal(ftruncate(them.fds[i], (off_t)SLAB), 0);
		them.is_lent[i] = false;
	}
	them.n_slabs = n;
	pthread_mutex_unlock(&them.lock);
}

static void they_may_make(uint32_t n)
{
	pthread_mutex_lock(&them.lock);
	them.n_may_make = n;
	pthread_mutex_unlock(&them.lock);
}

static void they_are_silent(void)
{
	pthread_mutex_lock(&them.lock);
	them.is_silent = true;
	pthread_mutex_unlock(&them.lock);
	slabs_answer_ns = 100 * CLOCK_NS_PER_MS;
}

static uint32_t n_wants(void)
{
	uint32_t n;

	pthread_mutex_lock(&them.lock);
	n = them.n_wants;
	pthread_mutex_unlock(&them.lock);
	return n;
}

static uint64_t slab_bytes_of(const struct hostpool_part *parts)
{
	uint64_t bytes = 0;

	for (; parts; parts = parts->next)
		bytes += parts->is_slab ? parts->size : 0;
	return bytes;
}

/* Bytes go out into parts and come back. */
static void move(const struct hostpool_part *parts)
{
	static unsigned char device[8 * MIB], back[8 * MIB];
	size_t at = 0;

	memset(device, 0x5a, sizeof(device));
	for (const struct hostpool_part *part = parts; part; part = part->next) {
		assert_int_equal(hostpool_copy_out(part, (uintptr_t)device + at, STREAM),
				 CUDA_SUCCESS);
		assert_int_equal(hostpool_copy_in((uintptr_t)back + at, part, STREAM),
				 CUDA_SUCCESS);
		at += part->size;
	}
	fake_run_copies();
	assert_memory_equal(device, back, at);
	memset(back, 0, sizeof(back));
}

static void borrows_what_there_is(void **state)
{
	struct hostpool_part *parts;

	(void)state;
	they_have(3);
	hostpool_begin(2 * SLAB, true, NULL);
	assert_int_equal(slabs_bytes(), 2 * SLAB);
	assert_int_equal(n_phys(), 0); /* nothing is mapped yet */
	parts = hostpool_get(SLAB + MIB);
	assert_int_equal(slab_bytes_of(parts), SLAB + MIB);
	assert_int_equal(hostpool_bytes(), 0);
	move(parts);
	hostpool_put(parts);
	assert_int_equal(n_wants(), 1);
}

static void makes_slabs_when_told(void **state)
{
	struct hostpool_part *parts;
	unsigned char byte = 0;

	(void)state;
	they_have(1);
	they_may_make(1);
	parts = hostpool_get(2 * SLAB);
	assert_int_equal(slab_bytes_of(parts), 2 * SLAB);
	move(parts);
	hostpool_put(parts);
	hostpool_trim();
	them_stop();
	assert_int_equal(them.n_offers, 1);
	assert_int_equal(them.n_returns, 2);
	assert_int_equal(pread(them.fds[1], &byte, 1, 0), 1);
	assert_int_equal(byte, 0x5a); /* the descriptor is of the memory that was copied to */
}

static void own_memory_is_for_what_cannot_be_borrowed(void **state)
{
	struct hostpool_part *parts;

	(void)state;
	they_have(1);
	hostmem_set_limit("4MiB");
	assert_int_equal(hostpool_lacks(3 * SLAB), SLAB);
	assert_true(hostpool_has(2 * SLAB));
	parts = hostpool_get(2 * SLAB);
	assert_int_equal(slab_bytes_of(parts), SLAB);
	assert_int_equal(hostpool_bytes(), SLAB);
	move(parts);
	hostpool_put(parts);
	hostmem_set_limit("");
}

static void no_answer_holds_nobody_up(void **state)
{
	struct hostpool_part *parts;
	uint64_t start_ns = clock_now_ns();

	(void)state;
	they_have(1);
	they_are_silent();
	parts = hostpool_get(SLAB);
	assert_non_null(parts);
	assert_false(parts->is_slab);
	assert_true(clock_now_ns() - start_ns < 10 * CLOCK_NS_PER_SEC);
	hostpool_put(parts);
	assert_int_equal(n_wants(), 1); /* and no second one before the answer */
}

static void unused_slabs_go_back_unless_they_are_needed_soon(void **state)
{
	struct hostpool_part *parts;

	(void)state;
	they_have(3);
	parts = hostpool_get(3 * SLAB);
	hostpool_put(parts);
	hostpool_begin(2 * SLAB, false, NULL);
	assert_true(hostpool_may_return());
	assert_int_equal(hostpool_return_one(false), SLAB);
	assert_false(hostpool_may_return());
	assert_int_equal(hostpool_return_one(false), 0);
	assert_int_equal(slabs_bytes(), 2 * SLAB);
	assert_int_equal(hostpool_return_one(true), SLAB); /* others want it */
	parts = hostpool_get(SLAB);
	assert_int_equal(hostpool_return_one(true), 0);
	hostpool_put(parts);
	them_stop();
	assert_int_equal(them.n_returns, 2);
	assert_int_equal(n_lent(), 1);
}

static void slabs_are_mapped_ahead_one_by_one(void **state)
{
	(void)state;
	they_have(2);
	hostpool_begin(2 * SLAB, false, NULL);
	for (uint64_t n = 1; n <= 2; n++) {
		assert_true(hostpool_may_add(true));
		hostpool_add_one(true);
		assert_int_equal(hostpool_unused(), n * SLAB);
	}
	assert_false(hostpool_may_add(true));
	hostpool_touch(SLAB, NULL); /* may be needed some day */
	assert_true(hostpool_may_return());
}

static void others_wants_are_heard(void **state)
{
	(void)state;
	they_have(1);
	hostpool_begin(SLAB, false, NULL);
	answer(SLAB_WANTED, 5);
	slabs_receive();
	assert_int_equal(slabs_wanted(), 5);
	assert_int_equal(hostpool_return_one(true), SLAB);
	assert_int_equal(slabs_wanted(), 4);
	slabs_tell_unused(SLAB);
	them_stop();
	assert_int_equal(slabs_wanted(), 0);
	assert_int_equal(n_lent(), 0);
	assert_int_equal(them.unused, SLAB);
}

static void a_new_scheduler_is_offered_all(void **state)
{
	struct hostpool_part *parts;

	(void)state;
	they_have(1);
	they_may_make(2);
	parts = hostpool_get(2 * SLAB);
	them_stop();
	assert_int_equal(them.n_offers, 1);
	assert_int_equal(slabs_bytes(), 2 * SLAB);
	move(parts);
	them_start(SLAB);
	hostpool_put(parts);
	hostpool_trim();
	them_stop();
	assert_int_equal(them.n_offers, 3);
	assert_int_equal(them.n_returns, 2);
	assert_int_equal(n_lent(), 0);
}

static void slabs_of_another_size_are_not_mixed(void **state)
{
	struct hostpool_part *parts;

	(void)state;
	they_have(1);
	parts = hostpool_get(SLAB);
	them_stop();
	them_start(2 * SLAB);
	assert_false(slabs_is_open());
	move(parts);
	hostpool_put(parts);
	hostpool_trim();
	assert_int_equal(pthread_join(them.thread, NULL), 0);
	close(them.fd);
}

static void what_nobody_asked_for_ends_the_pair(void **state)
{
	struct slab_packet packet;
	size_t before;

	(void)state;
	they_have(1);
	before = n_files();
	slab_packet_init(&packet, SLAB_LENT, 1, 0);
	packet.ids[0] = 7;
	assert_int_equal(slab_packet_send(them.fd, &packet, them.fds, 1), 0);
	slabs_receive();
	assert_false(slabs_is_open());
	assert_int_equal(slabs_bytes(), 0);
	assert_int_equal(n_files(), before - 1); /* our end */
	assert_int_equal(pthread_join(them.thread, NULL), 0);
	close(them.fd);
}

static void any_failure_leaves_nothing_and_own_memory_serves(void **state)
{
	struct hostpool_part *parts;
	bool has_failed = true;

	(void)state;
	for (int n = 1; has_failed; n++) {
		uint64_t reserved = fake.reserved;

		they_have(2);
		they_may_make(2);
		fake_arm(n, CUDA_ERROR_UNKNOWN);
		parts = hostpool_get(3 * SLAB);
		has_failed = fake_disarm();
		assert_non_null(parts);
		hostpool_put(parts);
		hostpool_trim();
		assert_int_equal(slabs_bytes(), 0);
		assert_int_equal(n_phys(), 0);
		assert_true(fake.reserved <= reserved + (1024 + 2) * SLAB); /* once */
		them_stop();
		for (uint32_t i = 0; i < them.n_slabs; i++)
			close(them.fds[i]);
		them.n_slabs = 0;
		them_start(SLAB);
	}
	assert_true(them.n_bad > 0 && them.n_unmade > 0);
}

static void a_driver_that_cannot_is_left_alone(void **state)
{
	struct hostpool_part *parts;

	(void)state;
	they_have(8);
	cuda_real.cuMemImportFromShareableHandle = import_no;
	parts = hostpool_get(5 * SLAB);
	assert_non_null(parts);
	assert_int_equal(slab_bytes_of(parts), 0);
	hostpool_put(parts);
	them_stop();
	assert_int_equal(them.n_bad, 3);
	assert_int_equal(them.n_returns, 2);
}

static void a_slab_that_stays_mapped_is_not_returned(void **state)
{
	struct hostpool_part *parts;

	(void)state;
	they_have(1);
	parts = hostpool_get(SLAB);
	hostpool_put(parts);
	fake_arm(1, CUDA_ERROR_UNKNOWN);
	assert_int_equal(hostpool_return_one(true), SLAB);
	assert_true(fake_disarm());
	assert_int_equal(slabs_bytes(), SLAB);
	assert_int_equal(n_lent(), 1);
	them_stop();
	assert_int_equal(them.n_returns, 0);
	assert_int_equal(unmap_all(), 1);
	hostpool_after_fork_child();
}

static void each_device_that_copies_can_reach_it(void **state)
{
	struct hostpool_part *parts;

	(void)state;
	they_have(1);
	parts = hostpool_get(SLAB);
	assert_int_equal(fake_find_map((uintptr_t)parts->addr)->peers, 1);
	fake_current = FAKE_CTX_DEV1;
	move(parts);
	assert_int_equal(fake_find_map((uintptr_t)parts->addr)->peers, 3);
	fake_current = FAKE_CTX;
	hostpool_put(parts);
}

static void the_probe_leaves_nothing(void **state)
{
	bool has_failed = true;

	(void)state;
	for (int n = 1; has_failed; n++) {
		size_t before = n_files();
		uint64_t reserved = fake.reserved;

		fake_arm(n, CUDA_ERROR_UNKNOWN);
		hostpool_probe();
		has_failed = fake_disarm();
		if (unmap_all())
			continue; /* the addresses are not free */
		assert_int_equal(n_phys(), 0);
		assert_int_equal(n_files(), before);
		assert_int_equal(fake.reserved, reserved);
	}
}

static void a_child_has_no_slabs(void **state)
{
	struct hostpool_part *parts;
	int status;
	pid_t pid;

	(void)state;
	they_have(2);
	hostpool_begin(2 * SLAB, true, NULL);
	parts = hostpool_get(SLAB);
	pid = fork();
	if (pid == 0) {
		/* Ours, theirs, and what they have. */
		size_t all = n_files(), slabs = 3;

		hostpool_after_fork_child();
		_exit(n_files() != all - slabs || slabs_bytes() || slabs_is_open() ||
		      hostpool_unused());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(slabs_is_open());
	hostpool_put(parts);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(borrows_what_there_is),
		TEST(makes_slabs_when_told),
		TEST(own_memory_is_for_what_cannot_be_borrowed),
		TEST(no_answer_holds_nobody_up),
		TEST(unused_slabs_go_back_unless_they_are_needed_soon),
		TEST(slabs_are_mapped_ahead_one_by_one),
		TEST(others_wants_are_heard),
		TEST(a_new_scheduler_is_offered_all),
		TEST(slabs_of_another_size_are_not_mixed),
		TEST(what_nobody_asked_for_ends_the_pair),
		TEST(any_failure_leaves_nothing_and_own_memory_serves),
		TEST(a_driver_that_cannot_is_left_alone),
		TEST(each_device_that_copies_can_reach_it),
		TEST(the_probe_leaves_nothing),
		TEST(a_child_has_no_slabs),
		TEST(a_slab_that_stays_mapped_is_not_returned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
