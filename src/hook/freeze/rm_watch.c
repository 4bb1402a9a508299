/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/freeze/rm_watch.h"

#include "hook/base/hook_log.h"
#include "hook/freeze/freeze_private.h"
#include "hook/freeze/ioctl_next.h"

#include <errno.h>
#include <stddef.h>

/* A request, unwrapped. */
struct rm_watch_call {
	int fd;
	uint32_t nr;
	uint32_t size;
	void *arg;
	uint32_t was[2]; /* the last two words of a short allocation, before the call */
};

static void call_unwrap(struct rm_watch_call *call, unsigned long request, void *arg)
{
	const struct rm_abi_xfer *xfer = arg;

	call->nr = _IOC_NR(request);
	call->size = _IOC_SIZE(request);
	call->arg = arg;
	if (call->nr == RM_ABI_ESC_XFER && call->size == sizeof(*xfer)) {
		call->nr = xfer->cmd;
		call->size = xfer->size;
		call->arg = (void *)(uintptr_t)xfer->ptr;
	}
}

/*
 * With drivers before 535 the short form is as long, but the first of its last two words is the
 * status and the second means nothing. No driver changes paramsSize.
 */
static bool call_has_succeeded_short(const struct rm_watch_call *call)
{
	const struct rm_abi_alloc *a = call->arg;

	return (a->paramsSize == 0 || a->paramsSize == call->was[0]) &&
	       (a->status == 0 || a->status == call->was[1]);
}

static bool call_has_succeeded(const struct rm_watch_call *call)
{
	if (call->size == sizeof(struct rm_abi_alloc))
		return call_has_succeeded_short(call);
	if (call->size == sizeof(struct rm_abi_alloc64))
		return ((const struct rm_abi_alloc64 *)call->arg)->status == 0;
	return ((const struct rm_abi_alloc64_old *)call->arg)->status == 0;
}

static void call_set_failed(struct rm_watch_call *call)
{
	if (call->size == sizeof(struct rm_abi_alloc)) {
		struct rm_abi_alloc *a = call->arg;

		a->status = RM_ABI_INSUFFICIENT_RESOURCES;
		if (call->was[0] == 0)
			a->paramsSize = RM_ABI_INSUFFICIENT_RESOURCES;
	} else if (call->size == sizeof(struct rm_abi_alloc64)) {
		((struct rm_abi_alloc64 *)call->arg)->status = RM_ABI_INSUFFICIENT_RESOURCES;
	} else {
		((struct rm_abi_alloc64_old *)call->arg)->status = RM_ABI_INSUFFICIENT_RESOURCES;
	}
}

static bool call_is_alloc(const struct rm_watch_call *call)
{
	return call->nr == RM_ABI_ESC_ALLOC && (call->size == sizeof(struct rm_abi_alloc) ||
						call->size == sizeof(struct rm_abi_alloc64) ||
						call->size == sizeof(struct rm_abi_alloc64_old));
}

static void rm_free_object(int fd, const struct channels_new *made)
{
	struct rm_abi_free gone = {
		.hRoot = made->client,
		.hObjectParent = made->parent,
		.hObjectOld = made->handle,
	};

	uint64_t serial = channels_free_begin(made->client, made->handle);
	int r = ioctl_next_rm(fd, RM_ABI_REQUEST_FREE, &gone);

	channels_free_end(serial, r == 0 && gone.status == RM_ABI_OK);
}

static void rm_on_alloc(struct rm_watch_call *call)
{
	const struct rm_abi_alloc *a = call->arg; /* the forms begin alike */
	const uint32_t *params = (const uint32_t *)(uintptr_t)a->pAllocParms;
	struct channels_new made = {
		.fd = call->fd,
		.client = a->hRoot,
		.parent = a->hObjectParent,
		.handle = a->hObjectNew,
		.class = a->hClass,
	};
	struct channels_batch channel;

	if (!call_has_succeeded(call))
		return;
	/* The parameters can be read, because the driver has read them. */
	if (made.class == RM_ABI_CLASS_GROUP && params)
		made.engine = params[RM_ABI_GROUP_ENGINE];
	if (made.class == RM_ABI_CLASS_DEVICE && params)
		made.gpu = ((const struct rm_abi_device_params *)params)->deviceId;
	channels_add(&made, &channel);
	if (made.class == RM_ABI_CLASS_GROUP) {
		hook_debug("freeze: a group of channels for engine %u", made.engine);
		freeze_on_group(made.fd, made.client, made.handle, 0);
	} else if (channel.n && params &&
		   !channels_group_gpu(made.client, made.parent, &made.gpu)) {
		hook_debug("freeze: a channel without a group, for engine %u",
			   params[RM_ABI_CHANNEL_ENGINE]);
	}
	if (channel.n && !freeze_newborn(&channel)) {
		rm_free_object(made.fd, &made);
		call_set_failed(call);
	}
}

static int rm_forward_free(const struct rm_watch_call *call, unsigned long request, void *arg)
{
	const struct rm_abi_free *gone = call->arg;
	uint64_t serial = channels_free_begin(gone->hRoot, gone->hObjectOld);
	int r = ioctl_next_rm(call->fd, request, arg);

	channels_free_end(serial, r >= 0 && gone->status == RM_ABI_OK);
	return r;
}

static void rm_on_control(const struct rm_watch_call *call)
{
	const struct rm_abi_control *c = call->arg;

	if (c->status != RM_ABI_OK)
		return;
	if (c->cmd == RM_ABI_CMD_SET_TIMESLICE && c->params && c->paramsSize >= sizeof(uint64_t))
		freeze_on_group(call->fd, c->hClient, c->hObject,
				*(const uint64_t *)(uintptr_t)c->params);
	else if (c->cmd == RM_ABI_CMD_DISABLE_CHANNELS)
		channels_lose("the program stops channels itself");
}

int rm_watch_ioctl(int fd, unsigned long request, void *arg)
{
	struct rm_watch_call call = {.fd = fd};
	int r, saved_errno;

	/* The kernel refuses a request without an argument. */
	if (arg)
		call_unwrap(&call, request, arg);
	if (!call.arg)
		return ioctl_next_rm(fd, request, arg);
	if (call_is_alloc(&call) && call.size == sizeof(struct rm_abi_alloc)) {
		call.was[0] = ((const struct rm_abi_alloc *)call.arg)->paramsSize;
		call.was[1] = ((const struct rm_abi_alloc *)call.arg)->status;
	}

	if (call.nr == RM_ABI_ESC_FREE && call.size == sizeof(struct rm_abi_free))
		return rm_forward_free(&call, request, arg);

	r = ioctl_next_rm(fd, request, arg);
	if (r < 0)
		return r;
	saved_errno = errno;
	if (call_is_alloc(&call))
		rm_on_alloc(&call);
	else if (call.nr == RM_ABI_ESC_CONTROL && call.size == sizeof(struct rm_abi_control))
		rm_on_control(&call);
	errno = saved_errno;
	return r;
}
