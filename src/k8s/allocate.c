/* SPDX-License-Identifier: Apache-2.0 */

/* Allocate gives a container variables, mounts and devices, or says why it gets nothing. */

#include "k8s/methods_private.h"

#include "util/text.h"

#include <stdio.h>
#include <string.h>

#define OWN_ENVS  4
#define FILES_MAX 8

/* The GPU of the container's devices. -1: the call has failed. */
static int allocate_find_gpu(const struct methods *methods,
			     const V1beta1__ContainerAllocateRequest *request, size_t number,
			     struct devices_set *taken, struct methods_answer *answer)
{
	const struct devices *devices = methods->devices;
	struct devices_at first = {0, 0};

	if (!request->n_devices_ids) {
		(void)methods_fail(answer, GRPC_INVALID_ARGUMENT,
				   "container %zu asks for no device", number);
		return -1;
	}
	for (size_t i = 0; i < request->n_devices_ids; i++) {
		char id[DEVICES_ID_LEN];
		struct devices_at at;

		(void)snprintf(id, sizeof(id), "%s", request->devices_ids[i]);
		text_sanitize(id);
		if (devices_find(devices, request->devices_ids[i], &at)) {
			(void)methods_fail(answer, GRPC_INVALID_ARGUMENT,
					   "container %zu: there is no device '%s' on this node",
					   number, id);
			return -1;
		}
		if (!devices_set_add(taken, at)) {
			(void)methods_fail(answer, GRPC_INVALID_ARGUMENT,
					   "container %zu: device '%s' is named twice", number, id);
			return -1;
		}
		if (i == 0)
			first = at;
		if (at.gpu != first.gpu) {
			(void)methods_fail(
				answer, GRPC_FAILED_PRECONDITION,
				"container %zu: its devices belong to two GPUs, %s and %s. nvshare"
				" gives a container one GPU, so ask for one %s",
				number, devices->gpus[first.gpu].load.uuid,
				devices->gpus[at.gpu].load.uuid, methods->options->resource);
			return -1;
		}
	}
	return (int)first.gpu;
}

static int allocate_add_env(V1beta1__ContainerAllocateResponse *response,
			    struct methods_answer *answer, char *key, char *value)
{
	V1beta1__ContainerAllocateResponse__EnvsEntry *entry =
		METHODS_NEW(answer, V1beta1__ContainerAllocateResponse__EnvsEntry,
			    v1beta1__container_allocate_response__envs_entry__init);

	if (!entry || !key || !value)
		return -1;
	entry->key = key;
	entry->value = value;
	response->envs[response->n_envs++] = entry;
	return 0;
}

static int allocate_envs(const struct methods *methods, const char *uuid,
			 V1beta1__ContainerAllocateResponse *response,
			 struct methods_answer *answer)
{
	const char *s = methods->options->environment;
	size_t n = OWN_ENVS + 1;
	int r;

	for (const char *c = s; *c; c++)
		n += *c == ',';
	response->envs = METHODS_ARRAY(answer, V1beta1__ContainerAllocateResponse__EnvsEntry, n);
	if (!response->envs)
		return -1;
	r = allocate_add_env(response, answer, methods_print(answer, "LD_PRELOAD"),
			     methods_print(answer, PLUGIN_CONTAINER_LIBRARY));
	if (!r)
		r = allocate_add_env(response, answer, methods_print(answer, "NVSHARE_SOCK_DIR"),
				     methods_print(answer, PLUGIN_CONTAINER_SOCK));
	if (!r)
		r = allocate_add_env(response, answer,
				     methods_print(answer, "CUDA_VISIBLE_DEVICES"),
				     methods_print(answer, "%s", uuid));
	if (!r && methods->options->inject == PLUGIN_INJECT_VISIBLE)
		r = allocate_add_env(response, answer,
				     methods_print(answer, "NVIDIA_VISIBLE_DEVICES"),
				     methods_print(answer, "%s", uuid));
	while (!r && *s) {
		int name_len = (int)strcspn(s, "="), len = (int)strcspn(s, ",");

		r = allocate_add_env(
			response, answer, methods_print(answer, "%.*s", name_len, s),
			methods_print(answer, "%.*s", len - name_len - 1, s + name_len + 1));
		s += len + (s[len] == ',');
	}
	return r;
}

static int allocate_add_mount(V1beta1__ContainerAllocateResponse *response,
			      struct methods_answer *answer, const char *host,
			      const char *container)
{
	V1beta1__Mount *mount = METHODS_NEW(answer, V1beta1__Mount, v1beta1__mount__init);

	if (!mount)
		return -1;
	mount->host_path = methods_print(answer, "%s", host);
	mount->container_path = methods_print(answer, "%s", container);
	mount->read_only = 1;
	if (!mount->host_path || !mount->container_path)
		return -1;
	response->mounts[response->n_mounts++] = mount;
	return 0;
}

/* The folder of the socket, not the socket: a scheduler that restarts makes a new one. */
static int allocate_mounts(const struct methods *methods,
			   V1beta1__ContainerAllocateResponse *response,
			   struct methods_answer *answer)
{
	int r;

	response->mounts = METHODS_ARRAY(answer, V1beta1__Mount, 2);
	if (!response->mounts)
		return -1;
	r = allocate_add_mount(response, answer, methods->library, PLUGIN_CONTAINER_LIBRARY);
	return r ? r
		 : allocate_add_mount(response, answer, plugin_options_host_sock(methods->options),
				      PLUGIN_CONTAINER_SOCK);
}

static int allocate_add_file(V1beta1__ContainerAllocateResponse *response,
			     struct methods_answer *answer, char *path)
{
	V1beta1__DeviceSpec *file =
		METHODS_NEW(answer, V1beta1__DeviceSpec, v1beta1__device_spec__init);

	if (!file || !path)
		return -1;
	file->host_path = path;
	file->container_path = path;
	file->permissions = methods_print(answer, "rw");
	if (!file->permissions)
		return -1;
	response->devices[response->n_devices++] = file;
	return 0;
}

static int allocate_files(const struct devices_gpu *gpu,
			  V1beta1__ContainerAllocateResponse *response,
			  struct methods_answer *answer)
{
	static const char *const common[] = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"};
	int r;

	if (gpu->minor == DEVICES_NO_NUMBER) {
		(void)methods_fail(
			answer, GRPC_FAILED_PRECONDITION,
			"the device file of %s is unknown: /proc/driver/nvidia of the host"
			" does not tell it; choose another way than inject=files",
			gpu->load.uuid);
		return -1;
	}
	response->devices = METHODS_ARRAY(answer, V1beta1__DeviceSpec, FILES_MAX);
	if (!response->devices)
		return -1;
	r = allocate_add_file(response, answer, methods_print(answer, "/dev/nvidia%d", gpu->minor));
	for (size_t i = 0; !r && i < sizeof(common) / sizeof(common[0]); i++)
		r = allocate_add_file(response, answer,
				      methods_print(answer, "/dev/%s", common[i]));
	return r;
}

static int allocate_cdi(const struct methods *methods, const char *uuid,
			V1beta1__ContainerAllocateResponse *response, struct methods_answer *answer)
{
	V1beta1__CDIDevice *device =
		METHODS_NEW(answer, V1beta1__CDIDevice, v1beta1__cdidevice__init);

	response->cdi_devices = METHODS_ARRAY(answer, V1beta1__CDIDevice, 1);
	if (!device || !response->cdi_devices)
		return -1;
	device->name = methods_print(answer, "%s=%s", methods->options->cdi_kind, uuid);
	if (!device->name)
		return -1;
	response->cdi_devices[response->n_cdi_devices++] = device;
	return 0;
}

V1beta1__ContainerAllocateResponse *allocate_container(
	const struct methods *methods, const V1beta1__ContainerAllocateRequest *request,
	size_t number, struct devices_set *taken, struct methods_answer *answer)
{
	V1beta1__ContainerAllocateResponse *response =
		METHODS_NEW(answer, V1beta1__ContainerAllocateResponse,
			    v1beta1__container_allocate_response__init);
	const struct devices_gpu *gpu;
	const char *fault;
	int at, r;

	if (!response)
		return NULL;
	at = allocate_find_gpu(methods, request, number, taken, answer);
	if (at < 0)
		return NULL;
	gpu = &methods->devices->gpus[at];
	fault = devices_fault(methods->devices, (uint32_t)at);
	if (fault)
		return methods_fail(answer, GRPC_UNAVAILABLE,
				    "container %zu: %s cannot be used: %s", number, gpu->load.uuid,
				    fault);
	if (!methods->library)
		return methods_fail(answer, GRPC_FAILED_PRECONDITION,
				    "there is no library %s on this node (NVSHARE_PLUGIN_LIBRARY)",
				    methods->options->library);
	r = allocate_envs(methods, gpu->load.uuid, response, answer);
	if (!r)
		r = allocate_mounts(methods, response, answer);
	if (!r && methods->options->inject == PLUGIN_INJECT_FILES)
		r = allocate_files(gpu, response, answer);
	if (!r && methods->options->inject == PLUGIN_INJECT_CDI)
		r = allocate_cdi(methods, gpu->load.uuid, response, answer);
	return r ? NULL : response;
}
