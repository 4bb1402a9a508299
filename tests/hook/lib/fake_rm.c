/* SPDX-License-Identifier: Apache-2.0 */

#include "fake_rm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct fake_rm fake_rm = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint32_t index_of(uint32_t handle)
{
	uint32_t i;

	for (i = 0; i < fake_rm.n && fake_rm.handles[i] != handle; i++)
		;
	return i;
}

static uint32_t serve_disable(const struct rm_abi_disable_channels *p)
{
	if (p->numChannels == 0)
		return RM_ABI_INVALID_PARAM_STRUCT;
	fake_rm.n_controls++;
	if (p->numChannels > fake_rm.n_max)
		fake_rm.n_max = p->numChannels;
	if (p->bDisable && fake_rm.refuse_from && fake_rm.n_controls >= fake_rm.refuse_from)
		return RM_ABI_INVALID_PARAM;
	if (!p->bDisable && fake_rm.refuse_on && fake_rm.refuse_on--)
		return RM_ABI_INVALID_PARAM;
	for (uint32_t i = 0; i < p->numChannels; i++) {
		uint32_t k = index_of(p->hChannelList[i]);

		if (k == fake_rm.n)
			return RM_ABI_INVALID_CHANNEL;
		fake_rm.is_off[k] = p->bDisable;
	}
	return RM_ABI_OK;
}

static void serve_control(struct rm_abi_control *c)
{
	void *params = (void *)(uintptr_t)c->params;

	c->status = RM_ABI_OK;
	if (c->cmd == RM_ABI_CMD_SET_TIMESLICE)
		memcpy(&fake_rm.timeslice_us, params, sizeof(fake_rm.timeslice_us));
	else if (c->cmd == RM_ABI_CMD_GET_TIMESLICE)
		memcpy(params, &fake_rm.timeslice_us, sizeof(fake_rm.timeslice_us));
	else if (c->cmd == RM_ABI_CMD_DISABLE_CHANNELS)
		c->status = c->hObject == SUBDEVICE && c->hClient == CLIENT ? serve_disable(params)
									    : RM_ABI_INVALID_OBJECT;
}

static void serve_free(struct rm_abi_free *gone)
{
	uint32_t k = index_of(gone->hObjectOld);

	gone->status = RM_ABI_OK;
	fake_rm.n_freed++;
	if (k == fake_rm.n)
		return;
	fake_rm.n--;
	fake_rm.handles[k] = fake_rm.handles[fake_rm.n];
	fake_rm.is_off[k] = fake_rm.is_off[fake_rm.n];
}

static void serve_alloc(void *arg, uint32_t size)
{
	const struct rm_abi_alloc *a = arg;

	if (rm_abi_is_channel(a->hClass) && fake_rm.alloc_status == RM_ABI_OK &&
	    fake_rm.n < CHANNELS_MAX) {
		fake_rm.handles[fake_rm.n] = a->hObjectNew;
		fake_rm.is_off[fake_rm.n++] = false;
	}
	if (size == sizeof(struct rm_abi_alloc))
		((struct rm_abi_alloc *)arg)->status = fake_rm.alloc_status;
	else if (size == sizeof(struct rm_abi_alloc64))
		((struct rm_abi_alloc64 *)arg)->status = fake_rm.alloc_status;
	else if (size == sizeof(struct rm_abi_alloc64_old))
		((struct rm_abi_alloc64_old *)arg)->status = fake_rm.alloc_status;
}

/* In place of the library's: the calls end here. */
int ioctl_next_rm(int fd, unsigned long request, void *arg)
{
	const struct rm_abi_xfer *xfer = arg;
	uint32_t nr = _IOC_NR(request), size = _IOC_SIZE(request);
	void (*meanwhile)(void) = NULL;
	uint64_t pause_ns = 0;

	if (fd != FD) {
		errno = ENOTTY;
		return -1;
	}
	if (nr == RM_ABI_ESC_XFER) {
		nr = xfer->cmd;
		size = xfer->size;
		arg = (void *)(uintptr_t)xfer->ptr;
	}
	pthread_mutex_lock(&fake_rm.lock);
	if (nr == RM_ABI_ESC_CONTROL) {
		const struct rm_abi_control *c = arg;

		if (c->cmd == RM_ABI_CMD_DISABLE_CHANNELS) {
			meanwhile = fake_rm.meanwhile;
			fake_rm.meanwhile = NULL;
		}
		serve_control(arg);
	} else if (nr == RM_ABI_ESC_FREE) {
		serve_free(arg);
		pause_ns = fake_rm.free_ns;
	} else if (nr == RM_ABI_ESC_ALLOC) {
		serve_alloc(arg, size);
	}
	pthread_mutex_unlock(&fake_rm.lock);
	if (pause_ns)
		clock_nap(pause_ns);
	if (meanwhile)
		meanwhile();
	return 0;
}

int ioctl_next(int fd, unsigned long request, void *arg)
{
	return ioctl_next_rm(fd, request, arg);
}

int ioctl_control(int fd, uint32_t client, uint32_t object, uint32_t cmd, void *params,
		  uint32_t size)
{
	struct rm_abi_control c = {client, object, cmd, 0, (uintptr_t)params, size, 0};

	if (ioctl_next_rm(fd, RM_ABI_REQUEST_CONTROL, &c) < 0)
		return -errno;
	return (int)c.status;
}

/* ---- what the driver's library does --------------------------------------------- */

uint32_t fake_rm_make(uint32_t parent, uint32_t handle, uint32_t class, void *params)
{
	struct rm_abi_alloc a = {CLIENT, parent, handle, class, (uintptr_t)params, 0, 0};

	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_ALLOC, &a), 0);
	return a.status;
}

void fake_rm_destroy(uint32_t handle)
{
	struct rm_abi_free gone = {CLIENT, 0, handle, 0xffff};

	assert_int_equal(rm_watch_ioctl(FD, RM_ABI_REQUEST_FREE, &gone), 0);
}

void fake_rm_make_group_on(uint32_t handle, uint32_t engine)
{
	uint32_t params[8] = {0, 0, 0, engine};

	assert_int_equal(fake_rm_make(DEVICE, handle, RM_ABI_CLASS_GROUP, params), RM_ABI_OK);
}

void fake_rm_make_group(uint32_t handle)
{
	fake_rm_make_group_on(handle, RM_ABI_ENGINE_COMPUTE);
}

void fake_rm_make_copy_group(uint32_t handle)
{
	fake_rm_make_group_on(handle, RM_ABI_ENGINE_COPY0);
}

void fake_rm_make_channels(uint32_t group, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(fake_rm_make(group, group + 1 + i, 0xc86f, NULL), RM_ABI_OK);
}

void fake_rm_make_picture_groups(uint32_t handle)
{
	static const uint32_t engines[PICTURE_GROUPS] = {RM_ABI_ENGINE_NVDEC0,
							 RM_ABI_ENGINE_NVJPEG0, RM_ABI_ENGINE_OFA0};

	for (uint32_t i = 0; i < PICTURE_GROUPS; i++) {
		fake_rm_make_group_on(handle + 0x10 * i, engines[i]);
		fake_rm_make_channels(handle + 0x10 * i, 1);
	}
}

struct channels_counts fake_rm_counts(void)
{
	struct channels_counts c;

	channels_count(&c);
	return c;
}

uint32_t fake_rm_n_off(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fake_rm.n; i++)
		n += fake_rm.is_off[i];
	return n;
}

uint32_t fake_rm_n_left(void)
{
	uint32_t n;

	pthread_mutex_lock(&fake_rm.lock);
	n = fake_rm.n;
	pthread_mutex_unlock(&fake_rm.lock);
	return n;
}

int fake_rm_setup(void **unused)
{
	struct rm_abi_device_params gpu = {.deviceId = 3};

	(void)unused;
	virtual_clock_start();
	pthread_mutex_init(&fake_rm.lock, NULL);
	memset((char *)&fake_rm + sizeof(fake_rm.lock), 0, sizeof(fake_rm) - sizeof(fake_rm.lock));
	freeze_after_fork_child();
	channels_device_begin(0);
	assert_int_equal(fake_rm_make(0, CLIENT, RM_ABI_CLASS_ROOT, NULL), RM_ABI_OK);
	assert_int_equal(fake_rm_make(CLIENT, DEVICE, RM_ABI_CLASS_DEVICE, &gpu), RM_ABI_OK);
	assert_int_equal(fake_rm_make(DEVICE, SUBDEVICE, RM_ABI_CLASS_SUBDEVICE, NULL), RM_ABI_OK);
	fake_rm_make_group(GROUP);
	channels_device_end();
	return 0;
}

int fake_rm_teardown(void **unused)
{
	(void)unused;
	freeze_end();
	return 0;
}

void fake_rm_await_thaw(void)
{
	while (freeze_is_on())
		clock_nap(CLOCK_NS_PER_MS);
}

int fake_rm_run_apart(const struct CMUnitTest *test)
{
	const struct CMUnitTest tests[] = {*test};
	int status;
	pid_t pid;

	(void)fflush(NULL);
	pid = fork();
	if (pid == 0) {
		status = cmocka_run_group_tests_name("hook/freeze", tests, NULL, NULL);
		virtual_clock_stop();
		exit(status);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	return status != 0;
}

int fake_rm_run_all_apart(const struct CMUnitTest *tests, size_t n)
{
	int n_failed = 0;

	for (size_t i = 0; i < n; i++)
		n_failed += fake_rm_run_apart(&tests[i]);
	return n_failed;
}
