/* SPDX-License-Identifier: Apache-2.0 */

/* The library's start and end, lock, handles and error texts. */

#include "simgpu/nvml/ml.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static unsigned int n_inits;
static struct nvmlDevice_st handles[NODE_GPUS_MAX][ML_MIG_MAX + 1];

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&lock);
}

/* The slot is the parent's; the child's next call takes a slot for the child. */
static void after_fork_in_child(void)
{
	node_forget();
	pthread_mutex_init(&lock, NULL);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static nvmlReturn_t attach_node(void)
{
	int r = node_attach();

	if (r == 0)
		return NVML_SUCCESS;
	if (r == -EPERM || r == -EACCES)
		return NVML_ERROR_NO_PERMISSION;
	return r == -EAGAIN ? NVML_ERROR_INSUFFICIENT_RESOURCES : NVML_ERROR_DRIVER_NOT_LOADED;
}

nvmlReturn_t ml_enter(void)
{
	nvmlReturn_t r;

	pthread_mutex_lock(&lock);
	r = n_inits ? attach_node() : NVML_ERROR_UNINITIALIZED;
	if (r)
		pthread_mutex_unlock(&lock);
	return r;
}

void ml_leave(void)
{
	pthread_mutex_unlock(&lock);
}

nvmlDevice_t ml_handle(unsigned int gpu, unsigned int instance_plus_1)
{
	const struct node_config *config = &node_view.shared->config;

	if (gpu >= config->n_gpus || instance_plus_1 > config->n_mig)
		return NULL;
	return &handles[gpu][instance_plus_1];
}

/* Compares addresses only: the program may hand in any pointer. */
static bool is_handle(nvmlDevice_t device)
{
	uintptr_t first = (uintptr_t)handles, address = (uintptr_t)device;

	if (address < first || address >= first + sizeof(handles) ||
	    (address - first) % sizeof(**handles))
		return false;
	return ml_handle(device->gpu, device->instance_plus_1) == device;
}

static bool is_lost(nvmlDevice_t device)
{
	bool is;

	node_inject_poll();
	node_lock();
	is = node_view.shared->device[ml_first(device)].is_lost;
	node_unlock();
	return is;
}

nvmlReturn_t ml_enter_device(nvmlDevice_t device, unsigned int needs)
{
	nvmlReturn_t r = ml_enter();

	if (r)
		return r;
	if (!is_handle(device))
		r = NVML_ERROR_INVALID_ARGUMENT;
	else if ((needs & (ML_NEED_GPU | ML_NEED_WHOLE)) && device->instance_plus_1)
		r = NVML_ERROR_NOT_SUPPORTED;
	else if ((needs & ML_NEED_WHOLE) && node_view.shared->config.n_mig)
		r = NVML_ERROR_NOT_SUPPORTED;
	else if ((needs & ML_NEED_ALIVE) && is_lost(device))
		r = NVML_ERROR_GPU_IS_LOST;
	if (r)
		ml_leave();
	return r;
}

unsigned int ml_first(nvmlDevice_t device)
{
	unsigned int per_gpu = node_view.shared->config.n_mig ? node_view.shared->config.n_mig : 1;
	unsigned int instance = device->instance_plus_1 ? device->instance_plus_1 - 1 : 0;

	return device->gpu * per_gpu + instance;
}

unsigned int ml_count(nvmlDevice_t device)
{
	if (device->instance_plus_1 || !node_view.shared->config.n_mig)
		return 1;
	return node_view.shared->config.n_mig;
}

nvmlReturn_t ml_copy_text(char *ret, unsigned int length, const char *text)
{
	size_t size = strlen(text) + 1;

	if (!ret)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (length < size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(ret, text, size);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	nvmlReturn_t r;
	unsigned int gpu, i;

	(void)flags; /* the two flags (no GPUs, no attaching) only permit something */
	pthread_once(&fork_once, watch_forks);
	pthread_mutex_lock(&lock);
	r = attach_node();
	if (r == NVML_SUCCESS && n_inits++ == 0)
		for (gpu = 0; gpu < NODE_GPUS_MAX; gpu++)
			for (i = 0; i <= ML_MIG_MAX; i++)
				handles[gpu][i] = (struct nvmlDevice_st){gpu, i};
	pthread_mutex_unlock(&lock);
	return r;
}

nvmlReturn_t nvmlInit(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t r = NVML_SUCCESS;

	pthread_mutex_lock(&lock);
	if (n_inits == 0)
		r = NVML_ERROR_UNINITIALIZED;
	else if (--n_inits == 0)
		node_detach();
	pthread_mutex_unlock(&lock);
	return r;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
	static const char *const words[] = {
		[NVML_SUCCESS] = "Success",
		[NVML_ERROR_UNINITIALIZED] = "Uninitialized",
		[NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
		[NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
		[NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
		[NVML_ERROR_ALREADY_INITIALIZED] = "Already Initialized",
		[NVML_ERROR_NOT_FOUND] = "Not Found",
		[NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
		[NVML_ERROR_INSUFFICIENT_POWER] = "Insufficient External Power",
		[NVML_ERROR_DRIVER_NOT_LOADED] = "Driver Not Loaded",
		[NVML_ERROR_TIMEOUT] = "Timeout",
		[NVML_ERROR_IRQ_ISSUE] = "Interrupt Request Issue",
		[NVML_ERROR_LIBRARY_NOT_FOUND] = "NVML Shared Library Not Found",
		[NVML_ERROR_FUNCTION_NOT_FOUND] = "Function Not Found",
		[NVML_ERROR_CORRUPTED_INFOROM] = "Corrupted infoROM",
		[NVML_ERROR_GPU_IS_LOST] = "GPU is lost",
		[NVML_ERROR_RESET_REQUIRED] = "GPU requires reset",
		[NVML_ERROR_OPERATING_SYSTEM] = "GPU access blocked by the operating system",
		[NVML_ERROR_LIB_RM_VERSION_MISMATCH] = "Driver/library version mismatch",
		[NVML_ERROR_IN_USE] = "In use by another client",
		[NVML_ERROR_MEMORY] = "Insufficient Memory",
		[NVML_ERROR_NO_DATA] = "No data",
		[NVML_ERROR_VGPU_ECC_NOT_SUPPORTED] = "vGPU ECC Not Supported",
		[NVML_ERROR_INSUFFICIENT_RESOURCES] = "Insufficient Resources",
		[NVML_ERROR_FREQ_NOT_SUPPORTED] = "Frequency Not Supported",
		[NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "Argument Version Mismatch",
	};

	if ((size_t)result < sizeof(words) / sizeof(*words))
		return words[result];
	return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	nvmlReturn_t r = ml_enter();

	if (r)
		return r;
	/* The real driver that the simulated GPU was compared with. */
	r = ml_copy_text(version, length, "580.159.04");
	ml_leave();
	return r;
}

/* Like NVIDIA's, this function and the next two answer before nvmlInit(), too. */
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	return ml_copy_text(version, length, "13.580.159.04");
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *cudaDriverVersion)
{
	return nvmlSystemGetCudaDriverVersion_v2(cudaDriverVersion);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *cudaDriverVersion)
{
	if (!cudaDriverVersion)
		return NVML_ERROR_INVALID_ARGUMENT;
	*cudaDriverVersion = ML_CUDA_VERSION;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t *state)
{
	nvmlReturn_t r = ml_enter();
	bool is_on;

	if (r)
		return r;
	is_on = node_view.shared->config.is_confidential;
	ml_leave();
	if (!state)
		return NVML_ERROR_INVALID_ARGUMENT;
	*state = (nvmlConfComputeSystemState_t){
		.environment = is_on ? NVML_CC_SYSTEM_ENVIRONMENT_PROD
				     : NVML_CC_SYSTEM_ENVIRONMENT_UNAVAILABLE,
		.ccFeature =
			is_on ? NVML_CC_SYSTEM_FEATURE_ENABLED : NVML_CC_SYSTEM_FEATURE_DISABLED,
	};
	return NVML_SUCCESS;
}
