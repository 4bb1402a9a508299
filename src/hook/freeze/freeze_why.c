/* SPDX-License-Identifier: Apache-2.0 */

/* Why this process must not be frozen, or cannot be. */

#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"
#include "hook/freeze/freeze_private.h"
#include "hook/freeze/ioctl_next.h"
#include "hook/table/bypass.h"
#include "hook/table/cuda_real.h"
#include "hook/table/elf_find.h"
#include "nvshare/protocol.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBNVML "libnvidia-ml.so.1"

static struct {
	void *nvml;        /* atomic; stays loaded */
	bool has_no_nvml;  /* atomic; dlopen() did not find it */
	int reason;        /* atomic; enum freeze_why; set once */
	bool is_looked_up; /* the agent's */
	bool is_probed;    /* the agent's */
} why;

static const struct {
	uint32_t halt;
	const char *text;
} reasons[] = {
	[FREEZE_WHY_NONE_] = {NVSHARE_HALT_FREEZE, NULL},
	[FREEZE_WHY_OFF] = {NVSHARE_HALT_OFF, "NVSHARE_FREEZE=0"},
	[FREEZE_WHY_INJECTED] = {NVSHARE_HALT_INJECTED, "a profiler or debugger is injected"},
	[FREEZE_WHY_TRACED] = {NVSHARE_HALT_TRACED, "a debugger"},
	[FREEZE_WHY_MPS] = {NVSHARE_HALT_MPS, "MPS"},
	[FREEZE_WHY_COHERENT] = {NVSHARE_HALT_COHERENT, "a coherent platform"},
	[FREEZE_WHY_CONFIDENTIAL] = {NVSHARE_HALT_CONFIDENTIAL, "confidential computing"},
	[FREEZE_WHY_NOT_OFFERED] = {NVSHARE_HALT_DRIVER, "this driver can not stop channels"},
	[FREEZE_WHY_STAYED_OFF] = {NVSHARE_HALT_DRIVER, "the driver would not let a channel go on"},
	[FREEZE_WHY_NO_WRITES] = {NVSHARE_HALT_UNPROVEN,
				  "stream writes do not work here, so a freeze can not be proven"},
	[FREEZE_WHY_REFUSED] = {NVSHARE_HALT_DRIVER, "the driver refused to freeze"},
	[FREEZE_WHY_WRITE_FAILED] = {NVSHARE_HALT_UNPROVEN, "a stream write failed while frozen"},
	[FREEZE_WHY_NEVER_WENT_ON] = {NVSHARE_HALT_UNPROVEN, "work did not go on after a thaw"},
	[FREEZE_WHY_WENT_ON] = {NVSHARE_HALT_UNPROVEN, "work went on while frozen"},
	[FREEZE_WHY_LOST] = {NVSHARE_HALT_CHANNELS, NULL},
	[FREEZE_WHY_BYPASS] = {NVSHARE_HALT_CHANNELS, "some calls go past nvshare"},
};

void freeze_why_set(enum freeze_why reason)
{
	int expected = FREEZE_WHY_NONE_;

	if (__atomic_compare_exchange_n(&why.reason, &expected, (int)reason, false,
					__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		hook_debug("no freeze: %s", reasons[reason].text); /* doctor reads it */
}

/* Reads the start of the file; "" where that fails. */
static void file_read_start(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	buf[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		(void)close(fd);
}

/*
 * The MPS daemon writes its pid beside its sockets. In another pid namespace that number says
 * nothing, so a directory that the user has named counts as live. Newer drivers tell it by an
 * attribute.
 */
static bool is_mps_alive(void)
{
	const char *folder = hook_options()->mps_dir;
	bool is_named = *folder;
	char path[512], text[32];
	int pid;

	if (!is_named)
		folder = "/tmp/nvidia-mps";
	(void)snprintf(path, sizeof(path), "%s/nvidia-cuda-mps-control.pid", folder);
	file_read_start(path, text, sizeof(text));
	pid = atoi(text);
	if (pid > 0 && (kill(pid, 0) == 0 || errno == EPERM))
		return true;
	(void)snprintf(path, sizeof(path), "%s/control", folder);
	return is_named && access(path, F_OK) == 0;
}

/* This shows a profiler or debugger that comes later, too. */
static bool is_traced(void)
{
	char text[2048];
	const char *line;

	file_read_start("/proc/self/status", text, sizeof(text));
	line = strstr(text, "\nTracerPid:");
	return line && atoi(line + strlen("\nTracerPid:")) != 0;
}

/* Some GPU of the program has the attribute. false where the driver does not know it. */
static bool any_device_has(CUdevice_attribute attribute)
{
	int n = 0, value;

	if (!cuda_real.cuDeviceGetCount || !cuda_real.cuDeviceGetAttribute ||
	    cuda_real.cuDeviceGetCount(&n) != CUDA_SUCCESS)
		return false;
	for (CUdevice dev = 0; dev < n; dev++) {
		value = 0;
		if (cuda_real.cuDeviceGetAttribute(&value, attribute, dev) == CUDA_SUCCESS && value)
			return true;
	}
	return false;
}

/*
 * A thread of the program calls this. It may hold the loader's lock, as a constructor of a library
 * does. Two threads at once may open the library twice; one closes it again.
 */
void freeze_load(void)
{
	void *lib, *expected = NULL;
	int saved_errno = errno;

	if (__atomic_load_n(&why.nvml, __ATOMIC_ACQUIRE) ||
	    __atomic_load_n(&why.has_no_nvml, __ATOMIC_ACQUIRE))
		return;
	lib = dlopen(LIBNVML, RTLD_LAZY | RTLD_LOCAL);
	if (!lib)
		__atomic_store_n(&why.has_no_nvml, true, __ATOMIC_RELEASE);
	else if (!__atomic_compare_exchange_n(&why.nvml, &expected, lib, false, __ATOMIC_ACQ_REL,
					      __ATOMIC_RELAXED))
		(void)dlclose(lib);
	errno = saved_errno;
}

static bool is_confidential(void)
{
	struct {
		unsigned int environment, cc_feature, dev_tools;
	} state = {0};
	bool has_lib = __atomic_load_n(&why.nvml, __ATOMIC_ACQUIRE) != NULL;
	int (*start)(void) = has_lib ? (int (*)(void))elf_find_in(LIBNVML, "nvmlInit_v2") : NULL;
	int (*end)(void) = has_lib ? (int (*)(void))elf_find_in(LIBNVML, "nvmlShutdown") : NULL;
	int (*get)(void *) =
		has_lib ? (int (*)(void *))elf_find_in(LIBNVML, "nvmlSystemGetConfComputeState")
			: NULL;
	bool is_on = false;

	if (start && end && get && start() == 0) {
		is_on = get(&state) == 0 && state.cc_feature != 0;
		(void)end();
	}
	return is_on;
}

static void why_look_up(void)
{
	const struct hook_options *options = hook_options();
	int saved_errno = errno;

	if (!options->freeze)
		freeze_why_set(FREEZE_WHY_OFF);
	else if (options->is_injected)
		freeze_why_set(FREEZE_WHY_INJECTED);
	else if (options->is_mps_part || is_mps_alive() ||
		 any_device_has(CU_DEVICE_ATTRIBUTE_MPS_ENABLED))
		freeze_why_set(FREEZE_WHY_MPS);
	/* The GPU works on the processor's page tables there, and the processor does not stand
	 * still. */
	else if (any_device_has(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES))
		freeze_why_set(FREEZE_WHY_COHERENT);
	else if (is_confidential())
		freeze_why_set(FREEZE_WHY_CONFIDENTIAL);
	errno = saved_errno;
}

/*
 * An empty list of channels stops nothing. A driver that knows the control may complain of the
 * list, and of nothing else. The proof shows what the control does with a real list.
 */
static void why_probe(const struct channels_target *subdevice)
{
	struct channels_batch none = {.subdevice = *subdevice};
	int r = freeze_switch(&none, true);

	if (r < 0 || r == RM_ABI_NOT_SUPPORTED || r == RM_ABI_INVALID_COMMAND ||
	    r == RM_ABI_INSUFFICIENT_PERMISSIONS)
		freeze_why_set(FREEZE_WHY_NOT_OFFERED);
}

static enum freeze_why why_now(void)
{
	struct channels_target subdevice;
	int reason;

	if (!why.is_looked_up) {
		why.is_looked_up = true;
		why_look_up();
	}
	reason = __atomic_load_n(&why.reason, __ATOMIC_ACQUIRE);
	if (!reason && !why.is_probed && channels_any_subdevice(&subdevice)) {
		why.is_probed = true;
		why_probe(&subdevice);
		reason = __atomic_load_n(&why.reason, __ATOMIC_ACQUIRE);
	}
	if (!reason && channels_why_lost())
		reason = FREEZE_WHY_LOST;
	if (!reason && bypass_seen())
		reason = FREEZE_WHY_BYPASS;
	if (!reason && is_traced())
		reason = FREEZE_WHY_TRACED;
	return (enum freeze_why)reason;
}

const char *freeze_why_not(void)
{
	enum freeze_why reason = why_now();

	return reason == FREEZE_WHY_LOST ? channels_why_lost() : reasons[reason].text;
}

uint32_t freeze_halt(void)
{
	return reasons[why_now()].halt;
}

void freeze_why_after_fork_child(void)
{
	why.reason = FREEZE_WHY_NONE_;
	why.is_looked_up = false;
	why.is_probed = false;
}
