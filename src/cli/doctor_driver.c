/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Calls of the driver are made in children, each with a bounded time. A driver that hangs keeps
 * the thread that calls it for ever, and not even SIGKILL ends it then. So nobody waits for a child
 * beyond its time.
 *
 * The first child asks, and makes no context. The second one makes a context of its own, and the
 * caller starts it only while no program uses a GPU.
 */

#include "cli/doctor.h"

#include "abi/cuda_abi.h"
#include "abi/nvml_abi.h"
#include "cli/cli.h"
#include "nvshare/nvshare.h"
#include "util/clock.h"
#include "util/fd.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASK_NS   (10 * CLOCK_NS_PER_SEC)
#define TRIAL_NS (60 * CLOCK_NS_PER_SEC) /* a limit holds the trial for long on a busy machine */
#define WORK_NS  (5 * CLOCK_NS_PER_SEC)  /* of the trial; the library proves within a second */

#define USERS_MAX  64
#define WORK_SIZE  (64u << 20) /* takes a GPU longer than a thread needs to submit it */
#define WORK_CALLS 10
/* At least: a busy machine may take longer for one, and not prove in the first. */
#define WORK_ROUNDS 3
#define WORK_LIMIT  "5" /* percent */

/* Calls the function symbol of library with the arguments; -1 where it has none. */
#define DRIVER_CALL(library, symbol, types, ...)                 \
	({                                                       \
		int(*call_) types;                               \
		void *found_ = dlsym((library), (symbol));       \
		memcpy(&call_, &found_, sizeof(call_));          \
		found_ ? call_(__VA_ARGS__) : DOCTOR_NO_LIBRARY; \
	})

/* ---- the child that asks ---------------------------------------------------------- */

static uint32_t nvml_users(void *nvml)
{
	unsigned int n = 0;
	uint32_t n_users = 0;

	(void)DRIVER_CALL(nvml, "nvmlDeviceGetCount_v2", (unsigned int *), &n);
	for (unsigned int i = 0; i < n; i++) {
		nvmlProcessInfo_t users[USERS_MAX];
		unsigned int n_here = USERS_MAX;
		nvmlDevice_t device;

		if (DRIVER_CALL(nvml, "nvmlDeviceGetHandleByIndex_v2",
				(unsigned int, nvmlDevice_t *), i, &device))
			continue;
		/* More processes than there is room for are an error, and are there all the same.
		 */
		switch (DRIVER_CALL(nvml, "nvmlDeviceGetComputeRunningProcesses_v3",
				    (nvmlDevice_t, unsigned int *, nvmlProcessInfo_t *), device,
				    &n_here, users)) {
		case NVML_SUCCESS:
		case NVML_ERROR_INSUFFICIENT_SIZE:
			n_users += n_here;
			break;
		default:
			n_users++; /* it cannot tell: as if somebody were there */
		}
	}
	return n_users;
}

static void nvml_ask(struct doctor_driver *driver)
{
	void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

	driver->nvml = nvml ? DRIVER_CALL(nvml, "nvmlInit_v2", (void)) : DOCTOR_NO_LIBRARY;
	if (driver->nvml) {
		driver->n_users = 1; /* nobody knows */
		return;
	}
	(void)DRIVER_CALL(nvml, "nvmlSystemGetDriverVersion", (char *, unsigned int),
			  driver->version, sizeof(driver->version));
	driver->n_users = nvml_users(nvml);
}

static void cuda_ask(struct doctor_driver *driver)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	int n = 0;

	driver->cuda = cuda ? DRIVER_CALL(cuda, "cuInit", (unsigned int), 0) : DOCTOR_NO_LIBRARY;
	if (!driver->cuda)
		driver->cuda = DRIVER_CALL(cuda, "cuDeviceGetCount", (int *), &n);
	if (driver->cuda)
		return;
	(void)DRIVER_CALL(cuda, "cuDriverGetVersion", (int *), &driver->cuda_version);
	driver->n_gpus = (uint32_t)n;
	for (CUdevice dev = 0; dev < n; dev++) {
		size_t total = 0;
		int has_vmm = 0;

		(void)DRIVER_CALL(cuda, "cuDeviceTotalMem_v2", (size_t *, CUdevice), &total, dev);
		(void)DRIVER_CALL(cuda, "cuDeviceGetAttribute", (int *, int, CUdevice), &has_vmm,
				  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, dev);
		driver->n_vmm += has_vmm != 0;
		if (total > driver->largest)
			driver->largest = total;
	}
}

/* ---- children ------------------------------------------------------------------------ */

/*
 * Reads up to size bytes from the child, until it ends or time is over. Returns the bytes; -1:
 * time is over. The child is gone then, or will be when the driver lets it go.
 */
static ssize_t child_read(pid_t pid, int fd, void *buf, size_t size, uint64_t time_ns)
{
	uint64_t end_ns = clock_now_ns() + time_ns;
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	size_t len = 0;
	ssize_t n = 1;

	while (n > 0 && len < size) {
		if (clock_poll(&pfd, 1, end_ns) <= 0 && errno != EINTR) {
			n = -1;
			break;
		}
		n = pfd.revents ? read(fd, (char *)buf + len, size - len) : 1;
		if (pfd.revents && n > 0)
			len += (size_t)n;
		if (clock_now_ns() >= end_ns)
			n = -1;
	}
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, n < 0 ? WNOHANG : 0);
	return n < 0 ? -1 : (ssize_t)len;
}

void doctor_driver_ask(struct doctor_driver *ret_driver)
{
	struct doctor_driver driver = {.child = DOCTOR_CHILD_ANSWERED};
	FD_CLEANUP int from = -1;
	ssize_t n;
	int fds[2];
	pid_t pid;

	*ret_driver = (struct doctor_driver){.child = DOCTOR_CHILD_DIED, .n_users = 1};
	if (pipe(fds) < 0)
		return;
	from = fds[0];
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		nvml_ask(&driver);
		cuda_ask(&driver);
		n = write(fds[1], &driver, sizeof(driver));
		_exit(n != sizeof(driver));
	}
	(void)close(fds[1]);
	if (pid < 0)
		return;
	n = child_read(pid, from, &driver, sizeof(driver), ASK_NS);
	if (n == sizeof(driver))
		*ret_driver = driver;
	else if (n < 0)
		ret_driver->child = DOCTOR_CHILD_HANGS;
}

/* ---- the trial of a freeze --------------------------------------------------------- */

static int freeze_say(const char *result)
{
	(void)printf("%s\n", result);
	return fflush(stdout) ? CLI_EXIT_UNWRITTEN : CLI_EXIT_OK;
}

/*
 * With a compute limit the library proves that freezing works, and then freezes the process when
 * the limit is used up. So the process works until it has been held, and is alive after it.
 */
int doctor_freeze_child(void)
{
	uint64_t end_ns = clock_now_ns() + WORK_NS;
	struct nvshare_status status = {0};
	CUdeviceptr memory = 0;
	CUcontext context;
	void *cuda;

	if (!nvshare_is_loaded())
		return freeze_say("nothing: the library is not loaded");
	cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!cuda || DRIVER_CALL(cuda, "cuInit", (unsigned int), 0) ||
	    DRIVER_CALL(cuda, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice), &context, 0) ||
	    DRIVER_CALL(cuda, "cuCtxSetCurrent", (CUcontext), context) ||
	    DRIVER_CALL(cuda, "cuMemAlloc_v2", (CUdeviceptr *, size_t), &memory, WORK_SIZE))
		return freeze_say("nothing: no context");
	for (int round = 0; round < WORK_ROUNDS || clock_now_ns() < end_ns; round++) {
		for (int i = 0; i < WORK_CALLS; i++)
			(void)DRIVER_CALL(cuda, "cuMemsetD8_v2",
					  (CUdeviceptr, unsigned char, size_t), memory, 1,
					  WORK_SIZE);
		if (DRIVER_CALL(cuda, "cuCtxSynchronize", (void)))
			return freeze_say("nothing: work failed");
		(void)nvshare_status(0, &status, sizeof(status));
		if (status.n_holds)
			return freeze_say("proven");
	}
	return freeze_say("nothing: no freeze");
}

static void freeze_exec(const char *library, int to)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0 || dup2(to, STDOUT_FILENO) < 0 || dup2(to, STDERR_FILENO) < 0)
		_exit(CLI_EXIT_REFUSED);
	self[n] = '\0';
	/* It is nobody's client: a scheduler would give it a turn. */
	if (setenv("LD_PRELOAD", library, 1) ||
	    setenv("NVSHARE_SOCK_DIR", "/proc/self/fdinfo", 1) ||
	    setenv("NVSHARE_COMPUTE_LIMIT", WORK_LIMIT, 1) || setenv("NVSHARE_DEBUG", "1", 1))
		_exit(CLI_EXIT_REFUSED);
	(void)execl(self, self, "--try-freeze", (char *)NULL);
	_exit(CLI_EXIT_REFUSED);
}

/* Finds the library's reason in what the child has printed. */
static bool freeze_reason(const char *text, char *ret_why, size_t size)
{
	static const char word[] = "]: no freeze: "; /* src/hook/freeze/freeze_why.c */
	const char *at = strstr(text, word);

	if (!at)
		return false;
	at += strlen(word);
	(void)snprintf(ret_why, size, "%.*s", (int)strcspn(at, "\n"), at);
	return true;
}

void doctor_freeze_try(const char *library, struct doctor_freeze *ret_freeze)
{
	static char text[1 << 16];
	FD_CLEANUP int from = -1;
	int fds[2];
	ssize_t n;
	pid_t pid;

	ret_freeze->trial = DOCTOR_TRIAL_NOTHING;
	if (pipe(fds) < 0)
		return;
	from = fds[0];
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0)
		freeze_exec(library, fds[1]);
	(void)close(fds[1]);
	if (pid < 0)
		return;
	n = child_read(pid, from, text, sizeof(text) - 1, TRIAL_NS);
	if (n < 0) {
		ret_freeze->trial = DOCTOR_TRIAL_HANGS;
		return;
	}
	text[n] = '\0';
	if (strstr(text, "\nproven\n") || strncmp(text, "proven\n", strlen("proven\n")) == 0)
		ret_freeze->trial = DOCTOR_TRIAL_PROVEN;
	else if (freeze_reason(text, ret_freeze->why, sizeof(ret_freeze->why)))
		ret_freeze->trial = DOCTOR_TRIAL_REFUSED;
}
