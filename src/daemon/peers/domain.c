/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/domain.h"

#include "daemon/peers/process.h"
#include "util/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STATUS_MAX 16384 /* of /proc/PID/status, bytes */
#define LABEL_MAX  512
#define PATH_LEN   256

static const char *const spaces[DOMAIN_SPACES] = {"user", "pid", "mnt", "net", "ipc", "cgroup"};

/* Lines of /proc/PID/status by which the kernel, a sandbox or a container tells processes apart. */
static const struct {
	const char *key;
	bool is_optional; /* kernels before 5.9 have none */
} lines[] = {
	{"Uid:", false},        {"Gid:", false},     {"Groups:", false},         {"CapInh:", false},
	{"CapPrm:", false},     {"CapEff:", false},  {"CapBnd:", false},         {"CapAmb:", false},
	{"NoNewPrivs:", false}, {"Seccomp:", false}, {"Seccomp_filters:", true},
};

static const char *const labels[] = {"attr/current", "attr/apparmor/current",
				     "attr/selinux/current", "attr/smack/current"};

/* The part of the status that later steps need. */
struct identity {
	uid_t uid;
	gid_t gid;
	uint64_t capabilities; /* effective */
	uid_t owner_uid;       /* of files in /proc/PID: the kernel sets it */
	gid_t owner_gid;
};

static bool domain_make_path(const char *proc, pid_t pid, const char *name, char ret[PATH_LEN])
{
	int n = snprintf(ret, PATH_LEN, "%s/%d/%s", proc, (int)pid, name);

	return n > 0 && n < PATH_LEN;
}

static bool domain_add_text(struct domain *domain, const char *text, size_t len)
{
	if (len > sizeof(domain->text) - domain->n_text)
		return false;
	memcpy(domain->text + domain->n_text, text, len);
	domain->n_text += len;
	return true;
}

/* ---- its ids and powers -------------------------------------------------------- */

/*
 * The real, effective, saved and file-system id must be the same. A process with two ids may have
 * borrowed one, or may be about to drop it. The kernel lets no process of either id read its
 * memory.
 */
static bool domain_read_ids(const char *line, uint32_t *ret_id)
{
	unsigned long id[4];
	char *end;

	for (size_t i = 0; i < 4; i++) {
		id[i] = strtoul(line, &end, 10);
		if (end == line || id[i] != id[0])
			return false;
		line = end;
	}
	*ret_id = (uint32_t)id[0];
	return id[0] < UINT32_MAX;
}

static bool domain_take_line(struct domain *domain, struct identity *identity, const char *key,
			     const char *line, size_t len)
{
	const char *value = line + strlen(key);

	if (!strcmp(key, "Uid:") && !domain_read_ids(value, &identity->uid))
		return false;
	if (!strcmp(key, "Gid:") && !domain_read_ids(value, &identity->gid))
		return false;
	if (!strcmp(key, "CapEff:"))
		identity->capabilities = strtoull(value, NULL, 16);
	return domain_add_text(domain, line, len);
}

/* Lines are taken in the table's order, so a missing line cannot pass for another one. */
static bool domain_take_status(struct domain *domain, struct identity *identity, const char *status)
{
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		size_t key_len = strlen(lines[i].key);
		const char *line = status;

		while (line && strncmp(line, lines[i].key, key_len) != 0) {
			line = strchr(line, '\n');
			line = line ? line + 1 : NULL;
		}
		if (!line && lines[i].is_optional)
			continue;
		if (!line || !domain_take_line(domain, identity, lines[i].key, line,
					       strcspn(line, "\n") + 1))
			return false;
	}
	return true;
}

static bool domain_read_status(const char *proc, pid_t pid, struct domain *domain,
			       struct identity *ret_identity)
{
	char path[PATH_LEN], status[STATUS_MAX];
	FD_CLEANUP int fd = -1;
	struct stat st;

	if (!domain_make_path(proc, pid, "status", path))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || fd_read_whole(fd, status, sizeof(status)) <= 0)
		return false;
	ret_identity->owner_uid = st.st_uid;
	ret_identity->owner_gid = st.st_gid;
	return domain_take_status(domain, ret_identity, status);
}

/* ---- its place -------------------------------------------------------------- */

static bool domain_read_spaces(const char *proc, pid_t pid, struct domain *domain)
{
	char path[PATH_LEN], name[16];
	struct stat st;

	for (size_t i = 0; i < DOMAIN_SPACES; i++) {
		(void)snprintf(name, sizeof(name), "ns/%s", spaces[i]);
		if (!domain_make_path(proc, pid, name, path) || stat(path, &st) < 0)
			return false;
		domain->spaces[i].dev = st.st_dev;
		domain->spaces[i].ino = st.st_ino;
	}
	return true;
}

/* Ids and capabilities mean something else in another user namespace. */
static bool domain_is_in_our_user_space(const char *proc, const struct domain *domain)
{
	char path[PATH_LEN];
	struct stat st;
	int n = snprintf(path, sizeof(path), "%s/self/ns/user", proc);

	return n > 0 && n < PATH_LEN && stat(path, &st) == 0 &&
	       st.st_dev == domain->spaces[0].dev && st.st_ino == domain->spaces[0].ino;
}

/* Without the security module the file is missing, or reading it fails with EINVAL. */
static bool domain_read_label(const char *path, struct domain *domain)
{
	FD_CLEANUP int fd = open(path, O_RDONLY | O_CLOEXEC);
	char label[LABEL_MAX];
	ssize_t n;

	if (fd < 0)
		return errno == ENOENT && domain_add_text(domain, "-\n", 2);
	n = fd_read_whole(fd, label, sizeof(label));
	if (n == -EINVAL)
		return domain_add_text(domain, "-\n", 2);
	return n >= 0 && domain_add_text(domain, "=", 1) &&
	       domain_add_text(domain, label, (size_t)n + 1);
}

static bool domain_read_labels(const char *proc, pid_t pid, struct domain *domain)
{
	char path[PATH_LEN];

	for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
		if (!domain_make_path(proc, pid, labels[i], path) ||
		    !domain_read_label(path, domain))
			return false;
	}
	return true;
}

/* ---- whether a process like it may look into it -------------------------------- */

/* The result of PIDFD_GET_INFO. Since Linux 6.16 it tells whether a process is dumpable. */
struct process_info {
	uint64_t mask;
	uint64_t cgroup;
	uint32_t ids[12];
	uint32_t dumpable;
	uint32_t spare;
};
_Static_assert(sizeof(struct process_info) == 72, "struct pidfd_info");

#define PROCESS_INFO          _IOWR(0xff, 11, struct process_info)
#define PROCESS_INFO_DUMPABLE (1u << 4)
#define PROCESS_DUMPABLE      (1u << 2) /* by its user; other bits: by root alone, or by nobody */

/* 1: yes; 0: no; -1: this kernel does not say. */
static int process_is_dumpable(int pidfd)
{
	struct process_info info = {.mask = PROCESS_INFO_DUMPABLE};

	if (ioctl(pidfd, PROCESS_INFO, &info) < 0 || !(info.mask & PROCESS_INFO_DUMPABLE))
		return -1;
	return info.dumpable == PROCESS_DUMPABLE;
}

/*
 * Whether /proc lets this thread look into the process without CAP_SYS_PTRACE. Capabilities
 * belong to a thread, so other threads of the scheduler keep theirs.
 */
static bool process_opens_without_power(const char *proc, pid_t pid)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct full[_LINUX_CAPABILITY_U32S_3],
		less[_LINUX_CAPABILITY_U32S_3];
	char path[PATH_LEN];
	struct stat st;
	bool is_open;

	if (!domain_make_path(proc, pid, "ns/user", path) || syscall(SYS_capget, &header, full) < 0)
		return false;
	memcpy(less, full, sizeof(less));
	less[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective &= ~CAP_TO_MASK(CAP_SYS_PTRACE);
	if (syscall(SYS_capset, &header, less) < 0)
		return false;
	is_open = stat(path, &st) == 0;
	(void)syscall(SYS_capset, &header, full); /* cannot fail: all of it is permitted */
	return is_open;
}

/*
 * Whether other processes of the same user may read the memory of this one.
 *
 * Root owns the /proc files of a process that is not dumpable. For a process of root this tells
 * nothing. If the pidfd tells nothing either, a process with CAP_SYS_PTRACE counts as open,
 * because the kernel lets its like read it in any case. For a process without that capability the
 * scheduler drops its own for a moment, and tries.
 */
static bool process_is_open_to_its_like(const char *proc, const struct domain_process *process,
					const struct identity *identity)
{
	int dumpable = process_is_dumpable(process->pidfd);

	if (dumpable >= 0)
		return dumpable;
	if (identity->owner_uid != identity->uid || identity->owner_gid != identity->gid)
		return false;
	if (identity->uid != 0 || identity->gid != 0)
		return true;
	return identity->capabilities & 1ull << CAP_SYS_PTRACE ||
	       process_opens_without_power(proc, process->pid);
}

/* ---- all of it --------------------------------------------------------------- */

bool domain_read(const char *proc, const struct domain_process *process, struct domain *ret)
{
	struct identity identity = {0};

	memset(ret, 0, sizeof(*ret));
	return process->pid > 0 && domain_read_status(proc, process->pid, ret, &identity) &&
	       identity.uid == process->uid && domain_read_spaces(proc, process->pid, ret) &&
	       domain_is_in_our_user_space(proc, ret) &&
	       domain_read_labels(proc, process->pid, ret) &&
	       process_is_open_to_its_like(proc, process, &identity) &&
	       process_is_alive(process->pidfd);
}

bool domain_is_same(const struct domain *a, const struct domain *b)
{
	return a->n_text == b->n_text && memcmp(a->text, b->text, a->n_text) == 0 &&
	       memcmp(a->spaces, b->spaces, sizeof(a->spaces)) == 0;
}
