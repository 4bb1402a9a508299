/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/kin.h"

#include <stdio.h>
#include <sys/stat.h>

static const char *const spaces[KIN_SPACES] = {"user", "pid", "mnt", "net", "ipc"};

void kin_read(pid_t pid, uid_t uid, gid_t gid, struct kin *ret)
{
	struct kin kin = {.uid = uid, .gid = gid};
	char path[64];
	struct stat st;

	*ret = (struct kin){.is_known = false};
	if (pid <= 0)
		return; /* of a pid namespace that we do not see */
	for (size_t i = 0; i < KIN_SPACES; i++) {
		(void)snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, spaces[i]);
		if (stat(path, &st) < 0)
			return;
		kin.spaces[i].dev = st.st_dev;
		kin.spaces[i].ino = st.st_ino;
	}
	kin.is_known = true;
	*ret = kin;
}

bool kin_are(const struct kin *a, const struct kin *b)
{
	if (!a->is_known || !b->is_known || a->uid != b->uid || a->gid != b->gid)
		return false;
	for (size_t i = 0; i < KIN_SPACES; i++) {
		if (a->spaces[i].dev != b->spaces[i].dev || a->spaces[i].ino != b->spaces[i].ino)
			return false;
	}
	return true;
}
