/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Event sets. The node has one ring of events for all processes. A set has its own place in the
 * ring, and for each GPU the kinds to report, and the event after which reports begin.
 */

#include <stdlib.h>
#include <time.h>

#include "simgpu/nvml/ml.h"
#include "util/clock.h"

/* A waiter polls: a line in the inject file becomes an event only when a process looks. */
#define LOOK_EVERY_NS (20 * CLOCK_NS_PER_MS)
#define SUPPORTED                                                         \
	(nvmlEventTypeXidCriticalError | nvmlEventTypeSingleBitEccError | \
	 nvmlEventTypeDoubleBitEccError)

struct nvmlEventSet_st {
	struct nvmlEventSet_st *next; /* sets */
	uint64_t last;
	struct {
		unsigned long long types;
		uint64_t after; /* number of the last event before the registration */
	} gpu[NODE_GPUS_MAX];
};

static struct nvmlEventSet_st *sets;

/* The link that points to the set in the list; NULL: no set, or a freed one. */
static struct nvmlEventSet_st **find_set_link(nvmlEventSet_t set)
{
	struct nvmlEventSet_st **at = &sets;

	while (*at && *at != set)
		at = &(*at)->next;
	return *at ? at : NULL;
}

static uint64_t last_event(void)
{
	uint64_t last;

	node_inject_poll(); /* lines written so far are events before the registration */
	node_lock();
	last = node_view.shared->last_event;
	node_unlock();
	return last;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	nvmlReturn_t r = ml_enter();
	struct nvmlEventSet_st *made;

	if (r)
		return r;
	made = set ? calloc(1, sizeof(*made)) : NULL;
	if (made) {
		made->last = last_event();
		made->next = sets;
		sets = made;
		*set = made;
	} else {
		r = set ? NVML_ERROR_MEMORY : NVML_ERROR_INVALID_ARGUMENT;
	}
	ml_leave();
	return r;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	struct nvmlEventSet_st **at;
	nvmlReturn_t r = ml_enter();

	if (r)
		return r;
	at = find_set_link(set);
	if (at) {
		*at = set->next;
		free(set);
	} else {
		r = NVML_ERROR_INVALID_ARGUMENT;
	}
	ml_leave();
	return r;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *eventTypes)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_GPU);

	if (r)
		return r;
	ml_leave();
	if (!eventTypes)
		return NVML_ERROR_INVALID_ARGUMENT;
	*eventTypes = SUPPORTED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes,
				      nvmlEventSet_t set)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_GPU);

	if (r)
		return r;
	if (!find_set_link(set)) {
		r = NVML_ERROR_INVALID_ARGUMENT;
	} else if (eventTypes & ~SUPPORTED) {
		r = NVML_ERROR_NOT_SUPPORTED;
	} else {
		if (!set->gpu[device->gpu].types)
			set->gpu[device->gpu].after = last_event();
		set->gpu[device->gpu].types |= eventTypes;
	}
	ml_leave();
	return r;
}

static unsigned long long type_of(const struct node_event *event)
{
	switch ((enum node_event_kind)event->kind) {
	case NODE_EVENT_XID:
		return nvmlEventTypeXidCriticalError;
	case NODE_EVENT_ECC_SINGLE:
		return nvmlEventTypeSingleBitEccError;
	case NODE_EVENT_ECC_DOUBLE:
		return nvmlEventTypeDoubleBitEccError;
	}
	return nvmlEventTypeNone;
}

/* The next event that the set has registered for. NVML_ERROR_TIMEOUT: none yet. */
static nvmlReturn_t take_event(nvmlEventSet_t set, nvmlEventData_t *ret)
{
	struct node_event event;

	if (!find_set_link(set))
		return NVML_ERROR_INVALID_ARGUMENT;
	node_inject_poll();
	while (node_event_next(&set->last, &event)) {
		if (event.gpu >= NODE_GPUS_MAX || event.id <= set->gpu[event.gpu].after ||
		    !(set->gpu[event.gpu].types & type_of(&event)))
			continue;
		*ret = (nvmlEventData_t){
			.device = ml_handle(event.gpu, 0),
			.eventType = type_of(&event),
			.eventData = event.data,
			.gpuInstanceId = NVML_NO_INSTANCE,
			.computeInstanceId = NVML_NO_INSTANCE,
		};
		return NVML_SUCCESS;
	}
	return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
	uint64_t end_ns = clock_now_ns() + timeoutms * CLOCK_NS_PER_MS, now_ns, left_ns;
	struct timespec pause = {0};
	nvmlReturn_t r;

	for (;;) {
		now_ns = clock_now_ns();
		r = ml_enter();
		if (r)
			return r;
		r = data ? take_event(set, data) : NVML_ERROR_INVALID_ARGUMENT;
		ml_leave();
		if (r != NVML_ERROR_TIMEOUT || now_ns >= end_ns)
			return r;
		left_ns = end_ns - now_ns;
		pause.tv_nsec = (long)(left_ns < LOOK_EVERY_NS ? left_ns : LOOK_EVERY_NS);
		(void)nanosleep(&pause, NULL); /* a signal only makes the next look earlier */
	}
}

/* The first form of the function has a shorter structure. */
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
	nvmlEventData_t v2;
	nvmlReturn_t r = nvmlEventSetWait_v2(set, data ? &v2 : NULL, timeoutms);

	if (r == NVML_SUCCESS) {
		data->device = v2.device;
		data->eventType = v2.eventType;
		data->eventData = v2.eventData;
	}
	return r;
}
