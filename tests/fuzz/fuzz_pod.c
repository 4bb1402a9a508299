/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes as /proc/PID/cgroup. A pod that is found stands in the text, as one of the kubelet's
 * groups; a UID has its form, and so has a container's ID.
 */

#include "daemon/peers/pod_cgroup.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int fuzz_left_out(void);

enum { SEEN_UUID, SEEN_STATIC, SEEN_CONTAINER, SEEN_NONE, SEEN_CONFLICT, SEEN_COUNT };

static unsigned char was_seen[SEEN_COUNT];

static void check_hex(const char *s, size_t len, int has_signs)
{
	for (size_t i = 0; i < len; i++) {
		int is_sign = has_signs && (i == 8 || i == 13 || i == 18 || i == 23);

		if (is_sign ? s[i] != '-'
			    : !isxdigit((unsigned char)s[i]) || isupper((unsigned char)s[i]))
			abort();
	}
}

/* The text has the UID behind "pod", with either sign. */
static void check_origin(const char *text, size_t size, const char *uid)
{
	char wanted[3 + POD_UID_LEN] = "pod";

	for (int is_systemd = 0; is_systemd < 2; is_systemd++) {
		for (size_t i = 0; i <= strlen(uid); i++)
			wanted[3 + i] = uid[i] == '-' && is_systemd ? '_' : uid[i];
		if (memmem(text, size, wanted, strlen(wanted)))
			return;
	}
	abort();
}

int fuzz_left_out(void)
{
	for (int i = 0; i < SEEN_COUNT; i++) {
		if (!was_seen[i])
			return i;
	}
	return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pod_cgroup pod;
	size_t len;
	int r;

	memset(&pod, 0x55, sizeof(pod));
	r = pod_cgroup_parse((const char *)data, size, &pod);
	if (r) {
		was_seen[r == POD_CGROUP_E_NONE ? SEEN_NONE : SEEN_CONFLICT] = 1;
		if (pod.uid[0] != 0x55)
			abort();
		return 0;
	}
	len = strnlen(pod.uid, sizeof(pod.uid));
	if (len != 32 && len != 36)
		abort();
	check_hex(pod.uid, len, len == 36);
	check_origin((const char *)data, size, pod.uid);
	was_seen[len == 32 ? SEEN_STATIC : SEEN_UUID] = 1;
	len = strnlen(pod.container, sizeof(pod.container));
	if (len != 0 && len != 64)
		abort();
	check_hex(pod.container, len, 0);
	was_seen[SEEN_CONTAINER] |= len == 64;
	return 0;
}
