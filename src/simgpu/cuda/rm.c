/* SPDX-License-Identifier: Apache-2.0 */

/* Makes and controls objects by real ioctl calls; rm.h says why. */

#include "simgpu/cuda/rm.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi/rm_abi.h"
#include "simgpu/cuda/api.h"
#include "simgpu/cuda/fail.h"
#include "simgpu/cuda/run.h"
#include "simgpu/cuda/state.h"

enum {
	TIMESLICE_COMPUTE_US = 2048,
	TIMESLICE_COPY_US = 1024,
	CHANNELS_COMPUTE = 8,
	CHANNELS_COPY = 4,
	CHANNELS_PICTURES = 1,
	CLASS_CHANNEL = 0xc86f,
	CLIENTS_MAX = 256,
};

/* The contexts with objects, which client_of() finds by descriptor. clients_lock guards them. */
static struct rm_context *clients[CLIENTS_MAX];
static pthread_mutex_t clients_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t last_client = 0xc1d00000u;
/* Tells send_request() whether its request came to serve_request(). */
static __thread unsigned int n_served;

static struct rm_context *client_of(int fd)
{
	unsigned int i;

	for (i = 0; i < CLIENTS_MAX; i++)
		if (clients[i] && clients[i]->fd == fd)
			return clients[i];
	return NULL;
}

static struct rm_group *group_of(struct rm_context *rm, uint32_t handle)
{
	unsigned int i;

	for (i = 0; i < RM_ENGINE_COUNT_; i++)
		if (handle && rm->groups[i].handle == handle)
			return &rm->groups[i];
	return NULL;
}

bool rm_is_running(const struct rm_context *rm, enum rm_engine engine)
{
	const struct rm_group *group;
	unsigned int i;

	if (rm->fd < 0)
		return true;
	group = &rm->groups[engine];
	for (i = 0; i < group->n_channels; i++)
		if (!__atomic_load_n(&group->is_off[i], __ATOMIC_ACQUIRE))
			return true;
	return false;
}

uint64_t rm_timeslice_ns(const struct rm_context *rm)
{
	return __atomic_load_n(&rm->groups[RM_COMPUTE].timeslice_us, __ATOMIC_RELAXED) * 1000;
}

static void set_channel(struct rm_context *rm, uint32_t handle, uint32_t is_off)
{
	unsigned int i, k;

	for (i = 0; i < RM_ENGINE_COUNT_; i++)
		for (k = 0; k < rm->groups[i].n_channels; k++)
			if (rm->groups[i].channels[k] == handle)
				__atomic_store_n(&rm->groups[i].is_off[k], is_off,
						 __ATOMIC_RELEASE);
}

static uint32_t control_channels(struct rm_context *rm, const struct rm_abi_control *control)
{
	const struct rm_abi_disable_channels *p = (const void *)(uintptr_t)control->params;
	uint32_t i;

	if (control->hObject != rm->subdevice)
		return RM_ABI_INVALID_OBJECT;
	if (control->paramsSize != sizeof(*p) || p->numChannels > RM_ABI_DISABLE_MAX)
		return RM_ABI_INVALID_PARAM;
	if (p->numChannels == 0)
		return RM_ABI_INVALID_PARAM_STRUCT;
	for (i = 0; i < p->numChannels; i++)
		if (p->hClientList[i] != rm->client)
			return RM_ABI_INVALID_CLIENT;
	for (i = 0; i < p->numChannels; i++)
		set_channel(rm, p->hChannelList[i], p->bDisable != 0);
	return RM_ABI_OK;
}

static uint32_t control_object(struct rm_context *rm, struct rm_abi_control *c, bool *ret_switched)
{
	struct rm_group *group;
	uint64_t *timeslice = (uint64_t *)(uintptr_t)c->params;

	if (c->hClient != rm->client)
		return RM_ABI_INVALID_CLIENT;
	switch (c->cmd) {
	case RM_ABI_CMD_DISABLE_CHANNELS:
		*ret_switched = true;
		return control_channels(rm, c);
	case RM_ABI_CMD_SET_TIMESLICE:
	case RM_ABI_CMD_GET_TIMESLICE:
		group = group_of(rm, c->hObject);
		if (!group)
			return RM_ABI_INVALID_OBJECT;
		if (c->paramsSize != sizeof(*timeslice))
			return RM_ABI_INVALID_PARAM;
		if (c->cmd == RM_ABI_CMD_GET_TIMESLICE)
			*timeslice = group->timeslice_us;
		else if (*timeslice == 0)
			return RM_ABI_INVALID_PARAM;
		else
			__atomic_store_n(&group->timeslice_us, *timeslice, __ATOMIC_RELAXED);
		return RM_ABI_OK;
	default:
		return RM_ABI_NOT_SUPPORTED;
	}
}

/* The request's name in NVSHARE_SIM_FAIL; NULL: it has none. */
static const char *name_of(unsigned int nr, const void *arg)
{
	const struct rm_abi_disable_channels *channels;
	const struct rm_abi_control *c = arg;

	if (nr == RM_ABI_ESC_ALLOC)
		return "rm_alloc";
	if (nr != RM_ABI_ESC_CONTROL)
		return NULL;
	if (c->cmd == RM_ABI_CMD_SET_TIMESLICE)
		return "rm_timeslice";
	if (c->cmd != RM_ABI_CMD_DISABLE_CHANNELS || c->paramsSize != sizeof(*channels))
		return NULL;
	channels = (const void *)(uintptr_t)c->params;
	return channels->bDisable ? "rm_disable" : "rm_enable";
}

static void set_status(unsigned int nr, void *arg, uint32_t status)
{
	if (nr == RM_ABI_ESC_CONTROL)
		((struct rm_abi_control *)arg)->status = status;
	else if (nr == RM_ABI_ESC_ALLOC)
		((struct rm_abi_alloc *)arg)->status = status;
	else if (nr == RM_ABI_ESC_FREE)
		((struct rm_abi_free *)arg)->status = status;
}

static bool is_ours(int fd)
{
	bool r;

	pthread_mutex_lock(&clients_lock);
	r = client_of(fd) != NULL;
	pthread_mutex_unlock(&clients_lock);
	return r;
}

/* Returns 0, -errno, or 1: fd is not ours. */
static int serve_request(int fd, unsigned long request, void *arg)
{
	unsigned int type = request >> 8 & 0xff, nr = request & 0xff;
	const struct rm_abi_xfer *xfer = arg;
	struct fail_order order = {FAIL_NOTHING, 0};
	struct rm_context *rm;
	bool has_switched = false;
	uint32_t status = RM_ABI_OK;

	if (type != RM_ABI_TYPE || !is_ours(fd))
		return 1;
	n_served++;
	if (nr == RM_ABI_ESC_XFER) {
		nr = xfer->cmd;
		arg = (void *)(uintptr_t)xfer->ptr;
	}
	if (name_of(nr, arg))
		order = fail_order(name_of(nr, arg));
	if (order.what == FAIL_ERRNO)
		return -order.code;
	pthread_mutex_lock(&clients_lock);
	rm = client_of(fd); /* NULL: it ended while fail_order() slept */
	if (order.what == FAIL_RESULT)
		status = (uint32_t)order.code;
	else if (nr == RM_ABI_ESC_CONTROL && order.what != FAIL_LIE)
		status = rm ? control_object(rm, arg, &has_switched) : RM_ABI_INVALID_CLIENT;
	set_status(nr, arg, status);
	pthread_mutex_unlock(&clients_lock);
	if (has_switched)
		run_settle();
	return 0;
}

SIM_EXPORT int ioctl(int fd, unsigned long request, ...) __THROW;
int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;
	int r;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	r = serve_request(fd, request, arg);
	if (r > 0)
		return (int)syscall(SYS_ioctl, fd, request, arg);
	if (r < 0) {
		errno = -r;
		return -1;
	}
	return 0;
}

/*
 * Calls ioctl() through the PLT, so that an interposing library sees the request. In a program that
 * opened libcuda.so.1 with RTLD_LOCAL, the call ends in libc and the kernel refuses the descriptor.
 * Then no library interposes, and the request is served here.
 */
static int send_request(int fd, unsigned long request, void *arg)
{
	int saved = errno, r;

	n_served = 0;
	r = ioctl(fd, request, arg) < 0 ? -errno : 0;
	if (r < 0 && !n_served) {
		r = serve_request(fd, request, arg);
		r = r > 0 ? -ENOTTY : r;
	}
	errno = saved;
	return r;
}

static int make_object(struct rm_context *rm, uint32_t parent, uint32_t handle, uint32_t class,
		       void *params, uint32_t params_size)
{
	struct rm_abi_alloc alloc = {
		.hRoot = rm->client,
		.hObjectParent = parent,
		.hObjectNew = handle,
		.hClass = class,
		.pAllocParms = (uintptr_t)params,
		.paramsSize = params_size,
	};
	int r = send_request(rm->fd, RM_ABI_REQUEST_ALLOC, &alloc);

	return r < 0 ? r : alloc.status ? -EIO : 0;
}

static const struct {
	uint32_t number;
	uint32_t n_channels;
	uint64_t timeslice_us;
} engines[RM_ENGINE_COUNT_] = {
	[RM_COMPUTE] = {RM_ABI_ENGINE_COMPUTE, CHANNELS_COMPUTE, TIMESLICE_COMPUTE_US},
	[RM_COPY_TO_DEVICE] = {RM_ABI_ENGINE_COPY0, CHANNELS_COPY, TIMESLICE_COPY_US},
	[RM_COPY_TO_HOST] = {RM_ABI_ENGINE_COPY0 + 1, CHANNELS_COPY, TIMESLICE_COPY_US},
	[RM_COPY_OTHER] = {RM_ABI_ENGINE_COPY0 + 2, CHANNELS_COPY, TIMESLICE_COPY_US},
	[RM_PICTURES] = {RM_ABI_ENGINE_NVJPEG0, CHANNELS_PICTURES, TIMESLICE_COPY_US},
};

static bool has_engine(enum rm_engine engine)
{
	const char *s = getenv("NVSHARE_SIM_PICTURES");

	return engine != RM_PICTURES || (s && strcmp(s, "1") == 0);
}

static int make_group(struct rm_context *rm, enum rm_engine engine, uint32_t handle)
{
	/* NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS: error, ECC error, address space, engine. */
	uint32_t params[8] = {0, 0, 0, engines[engine].number};
	uint32_t n = engines[engine].n_channels, i;
	struct rm_group *group = &rm->groups[engine];
	int r;

	group->timeslice_us = engines[engine].timeslice_us;
	group->handle = handle;
	r = make_object(rm, rm->subdevice - 1, handle, RM_ABI_CLASS_GROUP, params, sizeof(params));
	for (i = 0; r == 0 && i < n; i++) {
		group->channels[i] = handle + 1 + i;
		group->is_off[i] = 0;
		r = make_object(rm, handle, handle + 1 + i, CLASS_CHANNEL, NULL, 0);
	}
	group->n_channels = n;
	return r;
}

int rm_context_init(struct CUctx_st *ctx)
{
	struct rm_context *rm = &ctx->rm;
	struct rm_abi_device_params gpu = {.deviceId = device_node(ctx->device)};
	unsigned int i;
	int r;

	memset(rm, 0, sizeof(*rm));
	rm->fd = eventfd(0, EFD_CLOEXEC);
	if (rm->fd < 0)
		return -errno;
	pthread_mutex_lock(&clients_lock);
	rm->client = ++last_client;
	for (i = 0; i < CLIENTS_MAX && clients[i]; i++)
		;
	if (i < CLIENTS_MAX)
		clients[i] = rm;
	pthread_mutex_unlock(&clients_lock);
	if (i == CLIENTS_MAX) {
		close(rm->fd);
		rm->fd = -1;
		return -EMFILE;
	}
	rm->subdevice = 0x5c000002u;
	r = make_object(rm, 0, rm->client, RM_ABI_CLASS_ROOT, NULL, 0);
	if (r == 0)
		r = make_object(rm, rm->client, rm->subdevice - 1, RM_ABI_CLASS_DEVICE, &gpu,
				sizeof(gpu));
	if (r == 0)
		r = make_object(rm, rm->subdevice - 1, rm->subdevice, RM_ABI_CLASS_SUBDEVICE, NULL,
				0);
	for (i = 0; r == 0 && i < RM_ENGINE_COUNT_; i++)
		if (has_engine((enum rm_engine)i))
			r = make_group(rm, (enum rm_engine)i, 0x5c000100u + 0x100u * i);
	if (r < 0)
		rm_context_deinit(ctx);
	return r;
}

void rm_context_deinit(struct CUctx_st *ctx)
{
	struct rm_context *rm = &ctx->rm;
	struct rm_abi_free gone = {.hRoot = rm->client, .hObjectOld = rm->client};
	unsigned int i;

	if (rm->fd < 0)
		return;
	for (i = RM_ENGINE_COUNT_; i-- > 0;) {
		gone.hObjectParent = rm->subdevice - 1;
		gone.hObjectOld = rm->groups[i].handle;
		if (gone.hObjectOld)
			send_request(rm->fd, RM_ABI_REQUEST_FREE, &gone);
	}
	gone.hObjectParent = 0;
	gone.hObjectOld = rm->client;
	send_request(rm->fd, RM_ABI_REQUEST_FREE, &gone);
	pthread_mutex_lock(&clients_lock);
	for (i = 0; i < CLIENTS_MAX; i++)
		if (clients[i] == rm)
			clients[i] = NULL;
	close(rm->fd);
	rm->fd = -1;
	pthread_mutex_unlock(&clients_lock);
}

void rm_forget(void)
{
	memset(clients, 0, sizeof(clients));
	pthread_mutex_init(&clients_lock, NULL);
}
