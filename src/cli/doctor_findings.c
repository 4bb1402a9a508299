/* SPDX-License-Identifier: Apache-2.0 */

/* The findings, which follow from the facts: one function each, and their table at the end. */

#include "cli/doctor.h"
#include "cli/view.h"

#include "nvshare/version.h"
#include "util/parse.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER_MIN 515   /* the first branch that offers freezing */
#define CUDA_FULL  12050 /* the first version that says whether work is done */

struct size_text {
	char s[32];
};

static struct size_text size_text(uint64_t bytes)
{
	struct size_text text = {""};

	(void)format_size(bytes, text.s, sizeof(text.s));
	return text;
}

__attribute__((format(printf, 4, 5))) static void finding_set(struct doctor_finding *finding,
							      enum doctor_level level,
							      const char *advice,
							      const char *format, ...)
{
	va_list args;

	finding->level = level;
	(void)snprintf(finding->advice, sizeof(finding->advice), "%s", advice);
	va_start(args, format);
	(void)vsnprintf(finding->found, sizeof(finding->found), format, args);
	va_end(args);
}

static bool driver_works(const struct doctor_driver *driver)
{
	return driver->child == DOCTOR_CHILD_ANSWERED && driver->cuda == 0 && driver->n_gpus > 0;
}

/* The driver is there, but of no use. */
static void judge_bad_driver(const struct doctor_driver *driver, struct doctor_finding *ret)
{
	const char *look = "Look at nvidia-smi and at the kernel's log (dmesg, lines of NVRM and"
			   " Xid). The GPU may need a reset.";

	if (driver->child == DOCTOR_CHILD_HANGS)
		finding_set(ret, DOCTOR_PROBLEM, look, "the driver does not answer in time");
	else if (driver->child == DOCTOR_CHILD_DIED)
		finding_set(ret, DOCTOR_PROBLEM, look, "a process that asks the driver crashes");
	else if (driver->cuda == DOCTOR_NO_LIBRARY)
		finding_set(ret, DOCTOR_PROBLEM,
			    "Install NVIDIA's driver. In a container, pass the GPUs in (docker"
			    " run --gpus all).",
			    "there is no CUDA driver: libcuda.so.1 is not found");
	else if (driver->cuda)
		finding_set(ret, DOCTOR_PROBLEM, look,
			    "CUDA does not start: error %d of the driver", driver->cuda);
	else
		finding_set(ret, DOCTOR_PROBLEM,
			    "Look at CUDA_VISIBLE_DEVICES, and at the rights to /dev/nvidia*.",
			    "the driver shows no GPU");
}

static void judge_driver(const struct doctor_facts *facts, struct doctor_finding *ret)
{
	const struct doctor_driver *driver = &facts->driver;
	enum doctor_level level = DOCTOR_OK;
	const char *advice = "";

	if (!driver_works(driver)) {
		judge_bad_driver(driver, ret);
		return;
	}
	if (driver->version[0] && atoi(driver->version) < DRIVER_MIN) {
		level = DOCTOR_WARNING;
		advice = "Programs cannot be frozen with it: install driver 515 or later.";
	} else if (driver->cuda_version < CUDA_FULL) {
		level = DOCTOR_WARNING;
		advice = "Some settings need CUDA 12.5 or later (libnvshare(7), LIMITS).";
	}
	finding_set(ret, level, advice, "NVIDIA %s, CUDA %d.%d, %u GPU%s",
		    driver->version[0] ? driver->version : "of unknown version",
		    driver->cuda_version / 1000, driver->cuda_version % 1000 / 10, driver->n_gpus,
		    view_plural(driver->n_gpus));
}

static void judge_vmm(const struct doctor_facts *facts, struct doctor_finding *ret)
{
	const struct doctor_driver *driver = &facts->driver;

	if (!driver_works(driver))
		finding_set(ret, DOCTOR_WARNING, "See driver.", "not known without a driver");
	else if (driver->n_vmm < driver->n_gpus)
		finding_set(ret, DOCTOR_WARNING,
			    "Memory of programs there moves as managed memory, which is slower.",
			    "GPUs without virtual memory management: %u of %u",
			    driver->n_gpus - driver->n_vmm, driver->n_gpus);
	else
		finding_set(ret, DOCTOR_OK, "", "each GPU has virtual memory management");
}

static void judge_freeze(const struct doctor_facts *facts, struct doctor_finding *ret)
{
	const struct doctor_freeze *freeze = &facts->freeze;
	const char *drains = "Stops wait for submitted work instead (libnvshare(7),"
			     " NVSHARE_DRAIN_MAX_MS). Use programs with short kernels.";

	switch (freeze->trial) {
	case DOCTOR_TRIAL_PROVEN:
		if (freeze->client)
			finding_set(ret, DOCTOR_OK, "", "client %u can be frozen", freeze->client);
		else
			finding_set(ret, DOCTOR_OK, "", "a trial froze a program and let it go on");
		break;
	case DOCTOR_TRIAL_REFUSED:
		finding_set(ret, DOCTOR_WARNING, drains, "%s: %s",
			    freeze->client ? "clients cannot be frozen" : "a trial failed",
			    freeze->why);
		break;
	case DOCTOR_TRIAL_NOTHING:
		finding_set(ret, DOCTOR_WARNING, drains, "a trial proved nothing");
		break;
	case DOCTOR_TRIAL_HANGS:
		finding_set(ret, DOCTOR_PROBLEM, "Look at the kernel's log (dmesg).",
			    "the trial of a freeze did not end");
		break;
	case DOCTOR_TRIAL_IN_USE:
		finding_set(ret, DOCTOR_WARNING, "Try again when no program uses a GPU.",
			    "not tried, because programs use the GPUs");
		break;
	case DOCTOR_TRIAL_NO_WAY:
		finding_set(ret, DOCTOR_WARNING, "See driver and library.",
			    "not tried without driver and library");
		break;
	}
}

static void judge_library(const struct doctor_facts *facts, struct doctor_finding *ret)
{
	const struct doctor_library *library = &facts->library;

	if (!library->path[0])
		finding_set(ret, DOCTOR_PROBLEM, "Install libnvshare.so beside nvsharectl.",
			    "libnvshare.so is not found");
	else if (strcmp(library->version, NVSHARE_VERSION) != 0)
		finding_set(ret, DOCTOR_WARNING, "Install library and tools of one version.",
			    "version %s of %s; nvsharectl has " NVSHARE_VERSION,
			    library->version[0] ? library->version : "unknown", library->path);
	else
		finding_set(ret, DOCTOR_OK, "", "version %s, %s", library->version, library->path);
}

static void judge_socket(const struct doctor_facts *facts, struct doctor_finding *ret)
{
	static const struct {
		int error;
		const char *found, *advice;
	} cases[] = {
		{ENOENT, "there is no",
		 "Start nvshare-scheduler (systemctl enable --now nvshare-scheduler), or set"
		 " NVSHARE_SOCK_DIR."},
		{ECONNREFUSED, "nobody listens on",
		 "The scheduler has ended: start it, and look at its log."},
		{EACCES, "you have no right to",
		 "Look at the rights of the folder: programs of all users must reach it."},
		{EAGAIN, "the scheduler does not accept connections on",
		 "Look whether it is stopped or very busy."},
	};

	if (!facts->socket) {
		finding_set(ret, DOCTOR_OK, "", "%s/" NVSHARE_SOCK_NAME, facts->socket_dir);
		return;
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (cases[i].error == facts->socket) {
			finding_set(ret, DOCTOR_PROBLEM, cases[i].advice,
				    "%s %s/" NVSHARE_SOCK_NAME, cases[i].found, facts->socket_dir);
			return;
		}
	}
	finding_set(ret, DOCTOR_PROBLEM, "Look at NVSHARE_SOCK_DIR.",
		    "%s/" NVSHARE_SOCK_NAME ": %s", facts->socket_dir, strerror(facts->socket));
}

static void judge_rights(const struct doctor_facts *facts, struct doctor_finding *ret)
{
	if (facts->is_trusted)
		finding_set(ret, DOCTOR_OK, "", "you may steer all programs and the scheduler");
	else if (facts->has_group)
		finding_set(
			ret, DOCTOR_OK,
			"To steer all, become a member of the group (usermod -aG nvshare USER).",
			"you may steer your own programs; the group nvshare may steer all");
	else
		finding_set(ret, DOCTOR_WARNING, "Create it (groupadd --system nvshare).",
			    "there is no group nvshare, so only root and the scheduler's user may"
			    " steer all programs");
}

static void judge_scheduler(const struct doctor_facts *facts, struct doctor_finding *ret)
{
	const struct nvshare_status_node *node = &facts->status.node;

	if (facts->socket)
		finding_set(ret, DOCTOR_PROBLEM, "See socket.", "no scheduler is reached");
	else if (!facts->has_status)
		finding_set(ret, DOCTOR_PROBLEM,
			    "Look at its log. It may be of another version, or have no place left.",
			    "the scheduler does not answer as it should");
	else if (strcmp(node->version, NVSHARE_VERSION) != 0)
		finding_set(ret, DOCTOR_WARNING,
			    "Restart the scheduler after an upgrade: programs keep their memory.",
			    "version %s runs as pid %u; nvsharectl has " NVSHARE_VERSION,
			    node->version, node->pid);
	else
		finding_set(ret, DOCTOR_OK, "", "version %s runs as pid %u, %zu client%s",
			    node->version, node->pid, facts->status.n_clients,
			    view_plural(facts->status.n_clients));
}

static void judge_host_memory(const struct doctor_facts *facts, struct doctor_finding *ret)
{
	uint64_t card = facts->driver.largest;

	if (facts->host_memory == UINT64_MAX)
		finding_set(ret, DOCTOR_WARNING, "Look whether /proc is mounted.",
			    "the free memory is not known");
	else if (facts->host_memory < card)
		finding_set(
			ret, DOCTOR_WARNING,
			"Programs that take turns may find no place for their memory. Free some,"
			" or run fewer programs.",
			"%s can be spared for evicted memory; the largest GPU has %s",
			size_text(facts->host_memory).s, size_text(card).s);
	else
		finding_set(ret, DOCTOR_OK, "", "%s can be spared for evicted memory",
			    size_text(facts->host_memory).s);
}

static void judge_group(const struct doctor_facts *facts, struct doctor_finding *ret)
{
	if (facts->group_limit == UINT64_MAX)
		finding_set(ret, DOCTOR_OK, "", "no control group limits the memory");
	else if (facts->group_limit < facts->driver.largest)
		finding_set(ret, DOCTOR_WARNING,
			    "Evicted memory counts for its program's control group. Raise the limit"
			    " (memory.max, docker run --memory).",
			    "a control group limits memory to %s; the largest GPU has %s",
			    size_text(facts->group_limit).s, size_text(facts->driver.largest).s);
	else
		finding_set(ret, DOCTOR_OK, "", "a control group limits memory to %s",
			    size_text(facts->group_limit).s);
}

static void judge_memory_lock(const struct doctor_facts *facts, struct doctor_finding *ret)
{
	if (facts->lock_limit == UINT64_MAX)
		finding_set(ret, DOCTOR_OK, "", "no limit of locked memory");
	else
		finding_set(ret, DOCTOR_OK, "",
			    "a process may lock %s (ulimit -l); the library locks none",
			    size_text(facts->lock_limit).s);
}

/* The process has the library, or is not said to have it. */
static void judge_loaded(const struct doctor_process *process, struct doctor_finding *ret)
{
	if (process->is_replaced)
		finding_set(ret, DOCTOR_WARNING, "Restart the program to give it the new one.",
			    "process %d has a library that was replaced since: %s",
			    (int)process->pid, process->loaded.path);
	else if (strcmp(process->loaded.version, NVSHARE_VERSION) != 0)
		finding_set(ret, DOCTOR_WARNING,
			    "Start the program with the library of this version.",
			    "process %d has version %s of %s; nvsharectl has " NVSHARE_VERSION,
			    (int)process->pid,
			    process->loaded.version[0] ? process->loaded.version : "unknown",
			    process->loaded.path);
	else
		finding_set(ret, DOCTOR_OK, "", "process %d has %s%s", (int)process->pid,
			    process->loaded.path,
			    process->has_cuda ? "" : ", and has not loaded CUDA yet");
}

static void judge_preload(const struct doctor_facts *facts, struct doctor_finding *ret)
{
	const struct doctor_process *process = &facts->process;
	int pid = (int)process->pid;

	if (process->error == EACCES)
		finding_set(ret, DOCTOR_WARNING, "Ask as root, or as the user of the process.",
			    "you may not look into process %d", pid);
	else if (process->error)
		finding_set(ret, DOCTOR_PROBLEM, "Look for it with ps.", "there is no process %d",
			    pid);
	else if (process->loaded.path[0])
		judge_loaded(process, ret);
	else if (process->is_named)
		finding_set(ret, DOCTOR_PROBLEM,
			    "The path may be wrong in the program's container. Static and set-uid"
			    " programs load none.",
			    "process %d names the library in LD_PRELOAD, but has not loaded it",
			    pid);
	else
		finding_set(ret, DOCTOR_PROBLEM,
			    "Start the program with the library's path in LD_PRELOAD.",
			    "process %d runs without the library", pid);
}

/* The first of those that are stopped; NULL: all go on. */
static const struct nvshare_status_client *stopped_client(const struct status *status,
							  size_t *ret_n)
{
	const struct nvshare_status_client *first = NULL;

	*ret_n = 0;
	for (size_t i = 0; i < status->n_clients; i++) {
		if (!status_stopped(&status->clients[i]))
			continue;
		first = first ? first : &status->clients[i];
		++*ret_n;
	}
	return first;
}

static void judge_programs(const struct doctor_facts *facts, struct doctor_finding *ret)
{
	size_t n;
	const struct nvshare_status_client *client = stopped_client(&facts->status, &n);

	if (!client)
		finding_set(ret, DOCTOR_OK, "", "no program is known to be stopped");
	else if (client->flags & NVSHARE_CLIENT_FROZEN)
		finding_set(
			ret, DOCTOR_WARNING,
			"Its memory stays on the card meanwhile. Thaw the group (docker unpause).",
			"%zu stopped: client %u (%.64s, pid %u) is in a frozen control group", n,
			client->id, client->name, client->pid);
	else
		finding_set(
			ret, DOCTOR_WARNING,
			"Its memory stays on the card meanwhile. Let it go on (fg, kill -CONT), or"
			" end it.",
			"%zu stopped: client %u (%.64s, pid %u) is stopped (%s)", n, client->id,
			client->name, client->pid, status_stopped(client));
}

static const struct {
	const char *name;
	void (*judge)(const struct doctor_facts *facts, struct doctor_finding *ret);
	bool needs_process;
} rows[] = {
	{"driver", judge_driver, false},           {"vmm", judge_vmm, false},
	{"freeze", judge_freeze, false},           {"library", judge_library, false},
	{"socket", judge_socket, false},           {"rights", judge_rights, false},
	{"scheduler", judge_scheduler, false},     {"programs", judge_programs, false},
	{"host-memory", judge_host_memory, false}, {"cgroup", judge_group, false},
	{"memory-lock", judge_memory_lock, false}, {"preload", judge_preload, true},
};

size_t doctor_rows(void)
{
	return sizeof(rows) / sizeof(rows[0]);
}

const char *doctor_judge(size_t row, const struct doctor_facts *facts,
			 struct doctor_finding *ret_finding)
{
	if (row >= doctor_rows() || (rows[row].needs_process && !facts->process.pid))
		return NULL;
	rows[row].judge(facts, ret_finding);
	return rows[row].name;
}
