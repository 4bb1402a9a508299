/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/methods_private.h"

#include "k8s/prefer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const method_names[METHOD_COUNT_] = {
	[METHOD_OPTIONS] = "GetDevicePluginOptions", [METHOD_WATCH] = "ListAndWatch",
	[METHOD_PREFER] = "GetPreferredAllocation",  [METHOD_ALLOCATE] = "Allocate",
	[METHOD_PRE_START] = "PreStartContainer",
};

enum method methods_find(const char *path)
{
	static const char service[] = "/v1beta1.DevicePlugin/";
	int method = 0;

	if (strncmp(path, service, sizeof(service) - 1) != 0)
		return METHOD_COUNT_;
	while (method < METHOD_COUNT_ &&
	       strcmp(path + sizeof(service) - 1, method_names[method]) != 0)
		method++;
	return (enum method)method;
}

/* ---- the memory of an answer ------------------------------------------------- */

void *methods_fail(struct methods_answer *answer, enum grpc_code code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(answer->text, sizeof(answer->text), format, args);
	va_end(args);
	answer->code = code;
	return NULL;
}

void *methods_take(struct methods_answer *answer, size_t size)
{
	void *taken = arena_take(&answer->arena, size);

	return taken ? taken
		     : methods_fail(answer, GRPC_RESOURCE_EXHAUSTED,
				    "the request or its answer is too large");
}

char *methods_print(struct methods_answer *answer, const char *format, ...)
{
	char text[2 * PATH_MAX], *copy;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof(text))
		return methods_fail(answer, GRPC_INTERNAL, "a text of the answer is too long");
	copy = methods_take(answer, (size_t)n + 1);
	return copy ? memcpy(copy, text, (size_t)n + 1) : NULL;
}

static void methods_pack(struct methods_answer *answer, const ProtobufCMessage *message)
{
	size_t len = protobuf_c_message_get_packed_size(message);
	uint8_t *bytes = len <= GRPC_MESSAGE_MAX ? arena_take(&answer->arena, len + 1) : NULL;

	if (!bytes) {
		(void)methods_fail(answer, GRPC_RESOURCE_EXHAUSTED, "the answer is too large");
		return;
	}
	answer->len = protobuf_c_message_pack(message, bytes);
	answer->bytes = bytes;
}

/* NULL: the call has failed. */
static void *methods_unpack(struct methods_answer *answer,
			    const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
			    size_t len)
{
	ProtobufCAllocator allocator = arena_allocator(&answer->arena);
	void *message = protobuf_c_message_unpack(descriptor, &allocator, len, bytes);

	return message ? message
		       : methods_fail(answer, GRPC_INVALID_ARGUMENT,
				      "the request is no %s, or it is too large",
				      descriptor->short_name);
}

void methods_clear(struct methods_answer *answer)
{
	arena_clear(&answer->arena);
}

/* ---- the methods ------------------------------------------------------------- */

static void methods_options(struct methods_answer *answer)
{
	V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;

	options.get_preferred_allocation_available = 1;
	methods_pack(answer, &options.base);
}

/* NULL: the call has failed, or the node is not known. */
static V1beta1__TopologyInfo *methods_topology(int numa, struct methods_answer *answer)
{
	V1beta1__TopologyInfo *topology;
	V1beta1__NUMANode *node;

	if (numa == DEVICES_NO_NUMBER)
		return NULL;
	topology = METHODS_NEW(answer, V1beta1__TopologyInfo, v1beta1__topology_info__init);
	node = METHODS_NEW(answer, V1beta1__NUMANode, v1beta1__numanode__init);
	if (!topology || !node)
		return NULL;
	topology->nodes = METHODS_ARRAY(answer, V1beta1__NUMANode, 1);
	if (!topology->nodes)
		return NULL;
	node->id = numa;
	topology->nodes[topology->n_nodes++] = node;
	return topology;
}

static void methods_list(const struct devices *devices, struct methods_answer *answer)
{
	V1beta1__ListAndWatchResponse list = V1BETA1__LIST_AND_WATCH_RESPONSE__INIT;
	static char healthy[] = "Healthy", unhealthy[] = "Unhealthy";

	list.devices = METHODS_ARRAY(answer, V1beta1__Device, devices->n * devices->n_replicas);
	for (uint32_t gpu = 0; gpu < devices->n && !answer->code; gpu++) {
		V1beta1__TopologyInfo *topology = methods_topology(devices->gpus[gpu].numa, answer);

		for (uint32_t i = 0; i < devices->n_replicas && !answer->code; i++) {
			V1beta1__Device *device =
				METHODS_NEW(answer, V1beta1__Device, v1beta1__device__init);

			if (!device)
				return;
			device->id = methods_take(answer, DEVICES_ID_LEN);
			if (!device->id)
				return;
			devices_print_id(devices, (struct devices_at){gpu, i}, device->id);
			device->health = devices_is_healthy(devices, gpu) ? healthy : unhealthy;
			device->topology = topology;
			list.devices[list.n_devices++] = device;
		}
	}
	if (!answer->code)
		methods_pack(answer, &list.base);
}

/* The devices of ids, each once, in an array; unknown ones are left out. NULL: failed. */
static struct devices_at *prefer_read(const struct devices *devices, char *const *ids, size_t n,
				      struct devices_set *set, size_t *ret_n,
				      struct methods_answer *answer)
{
	struct devices_at *list = methods_take(answer, (n + 1) * sizeof(*list));

	*ret_n = 0;
	for (size_t i = 0; list && i < n; i++) {
		if (!devices_find(devices, ids[i], &list[*ret_n]) &&
		    devices_set_add(set, list[*ret_n]))
			++*ret_n;
	}
	return list;
}

/* Fills question and *ret_ids. 0, or -1: the call has failed. */
static int prefer_ask(const struct devices *devices,
		      const V1beta1__ContainerPreferredAllocationRequest *request,
		      struct devices_set *taken, struct prefer_question *ret,
		      struct methods_answer *answer)
{
	struct devices_set musts = {{0}};
	int32_t size = request->allocation_size;

	ret->musts = prefer_read(devices, request->must_include_deviceids,
				 request->n_must_include_deviceids, &musts, &ret->n_musts, answer);
	if (!ret->musts)
		return -1;
	/* Devices that this container has, or one before it gets, are not offered again. */
	for (size_t i = 0; i < ret->n_musts; i++)
		(void)devices_set_add(taken, ret->musts[i]);
	ret->others = prefer_read(devices, request->available_deviceids,
				  request->n_available_deviceids, taken, &ret->n_others, answer);
	if (!ret->others)
		return -1;
	if (size < 0 || (size_t)size < ret->n_musts ||
	    (size_t)size > ret->n_musts + ret->n_others) {
		(void)methods_fail(answer, GRPC_INVALID_ARGUMENT,
				   "%d devices are asked for; %zu must be among them, and %zu more"
				   " of this plugin are offered",
				   size, ret->n_musts, ret->n_others);
		return -1;
	}
	ret->n_wanted = (size_t)size;
	return 0;
}

/* NULL: the call has failed. */
static V1beta1__ContainerPreferredAllocationResponse *prefer_container(
	const struct devices *devices, const V1beta1__ContainerPreferredAllocationRequest *request,
	struct devices_set *chosen, struct methods_answer *answer)
{
	V1beta1__ContainerPreferredAllocationResponse *response =
		METHODS_NEW(answer, V1beta1__ContainerPreferredAllocationResponse,
			    v1beta1__container_preferred_allocation_response__init);
	struct devices_set taken = *chosen;
	struct prefer_question question;
	struct devices_at *list;

	if (!response || prefer_ask(devices, request, &taken, &question, answer))
		return NULL;
	list = methods_take(answer, (question.n_wanted + 1) * sizeof(*list));
	response->deviceids = METHODS_ARRAY(answer, char, question.n_wanted);
	if (!list || !response->deviceids)
		return NULL;
	prefer_choose(devices, &question, list);
	for (size_t i = 0; i < question.n_wanted; i++) {
		char *id = methods_take(answer, DEVICES_ID_LEN);

		if (!id)
			return NULL;
		devices_print_id(devices, list[i], id);
		response->deviceids[response->n_deviceids++] = id;
		(void)devices_set_add(chosen, list[i]);
	}
	return response;
}

static void methods_prefer(const struct methods *methods, const uint8_t *bytes, size_t len,
			   struct methods_answer *answer)
{
	V1beta1__PreferredAllocationResponse all = V1BETA1__PREFERRED_ALLOCATION_RESPONSE__INIT;
	const V1beta1__PreferredAllocationRequest *request = methods_unpack(
		answer, &v1beta1__preferred_allocation_request__descriptor, bytes, len);
	struct devices_set chosen = {{0}};

	if (!request)
		return;
	all.container_responses =
		METHODS_ARRAY(answer, V1beta1__ContainerPreferredAllocationResponse,
			      request->n_container_requests);
	for (size_t i = 0; i < request->n_container_requests && !answer->code; i++)
		all.container_responses[all.n_container_responses++] = prefer_container(
			methods->devices, request->container_requests[i], &chosen, answer);
	if (!answer->code)
		methods_pack(answer, &all.base);
}

static void methods_allocate(const struct methods *methods, const uint8_t *bytes, size_t len,
			     struct methods_answer *answer)
{
	V1beta1__AllocateResponse all = V1BETA1__ALLOCATE_RESPONSE__INIT;
	const V1beta1__AllocateRequest *request =
		methods_unpack(answer, &v1beta1__allocate_request__descriptor, bytes, len);
	struct devices_set taken = {{0}};

	if (!request)
		return;
	all.container_responses = METHODS_ARRAY(answer, V1beta1__ContainerAllocateResponse,
						request->n_container_requests);
	for (size_t i = 0; i < request->n_container_requests && !answer->code; i++)
		all.container_responses[all.n_container_responses++] = allocate_container(
			methods, request->container_requests[i], i + 1, &taken, answer);
	if (!answer->code)
		methods_pack(answer, &all.base);
}

static void methods_pre_start(const uint8_t *bytes, size_t len, struct methods_answer *answer)
{
	V1beta1__PreStartContainerResponse response = V1BETA1__PRE_START_CONTAINER_RESPONSE__INIT;

	if (methods_unpack(answer, &v1beta1__pre_start_container_request__descriptor, bytes, len))
		methods_pack(answer, &response.base);
}

void methods_call(const struct methods *methods, enum method method, const uint8_t *bytes,
		  size_t len, struct methods_answer *ret)
{
	switch (method) {
	case METHOD_OPTIONS:
		if (methods_unpack(ret, &v1beta1__empty__descriptor, bytes, len))
			methods_options(ret);
		return;
	case METHOD_WATCH:
		if (methods_unpack(ret, &v1beta1__empty__descriptor, bytes, len))
			methods_list(methods->devices, ret);
		return;
	case METHOD_PREFER:
		methods_prefer(methods, bytes, len, ret);
		return;
	case METHOD_ALLOCATE:
		methods_allocate(methods, bytes, len, ret);
		return;
	case METHOD_PRE_START:
		methods_pre_start(bytes, len, ret);
		return;
	case METHOD_COUNT_:
		(void)methods_fail(ret, GRPC_UNIMPLEMENTED, "there is no such method");
		return;
	}
}

void methods_register(const char *resource, const char *endpoint, struct methods_answer *ret)
{
	V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;
	V1beta1__RegisterRequest request;

	v1beta1__register_request__init(&request);
	request.version = methods_print(ret, "v1beta1");
	request.endpoint = methods_print(ret, "%s", endpoint);
	request.resource_name = methods_print(ret, "%s", resource);
	options.get_preferred_allocation_available = 1;
	request.options = &options; /* a kubelet before 1.26 asks for them here only */
	if (!ret->code)
		methods_pack(ret, &request.base);
}
