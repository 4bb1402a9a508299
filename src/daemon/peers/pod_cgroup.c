/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/pod_cgroup.h"

#include <stdbool.h>
#include <string.h>

/* A part of the text; it has no NUL. */
struct part {
	const char *at;
	size_t len;
};

/* These may stand above a pod. Only root can make groups of these names at these places. */
static const char *const ancestors[] = {
	"..",
	"kubelet",
	"kubelet.slice",
	"kubepods",
	"kubepods.slice",
	"kubelet-kubepods.slice",
	"besteffort",
	"burstable",
	"kubepods-besteffort.slice",
	"kubepods-burstable.slice",
	"kubelet-kubepods-besteffort.slice",
	"kubelet-kubepods-burstable.slice",
	"system.slice",
	"containerd.service",
};

static const char *const runtimes[] = {"cri-containerd-", "crio-", "docker-"};

static bool part_is(struct part part, const char *word)
{
	return part.len == strlen(word) && memcmp(part.at, word, part.len) == 0;
}

/* true: part began with word, which is gone from it. */
static bool part_drop_head(struct part *part, const char *word)
{
	size_t len = strlen(word);

	if (part->len < len || memcmp(part->at, word, len) != 0)
		return false;
	part->at += len;
	part->len -= len;
	return true;
}

static bool part_drop_tail(struct part *part, const char *word)
{
	size_t len = strlen(word);

	if (part->len < len || memcmp(part->at + part->len - len, word, len) != 0)
		return false;
	part->len -= len;
	return true;
}

/* The part up to the next end, which is dropped with it from rest. */
static struct part part_next(struct part *rest, char end)
{
	const char *stop = memchr(rest->at, end, rest->len);
	struct part part = {rest->at, stop ? (size_t)(stop - rest->at) : rest->len};
	size_t used = part.len + (stop != NULL);

	rest->at += used;
	rest->len -= used;
	return part;
}

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* A UUID with the sign between, or, of a static pod, 32 digits. */
static bool pod_take_uid(struct part part, char sign, char ret_uid[POD_UID_LEN])
{
	bool is_uuid = part.len == POD_UID_LEN - 1;

	if (!is_uuid && part.len != 32)
		return false;
	for (size_t i = 0; i < part.len; i++) {
		bool is_sign = is_uuid && (i == 8 || i == 13 || i == 18 || i == 23);

		if (is_sign ? part.at[i] != sign : !is_hex(part.at[i]))
			return false;
		ret_uid[i] = part.at[i];
		if (is_sign)
			ret_uid[i] = '-';
	}
	ret_uid[part.len] = '\0';
	return true;
}

/* "podUID", or of systemd "kubepods-burstable-podUID.slice". */
static bool pod_take_component(struct part part, char ret_uid[POD_UID_LEN])
{
	bool is_slice = part_drop_tail(&part, ".slice");

	if (is_slice) {
		(void)part_drop_head(&part, "kubelet-");
		if (!part_drop_head(&part, "kubepods-"))
			return false;
		if (!part_drop_head(&part, "besteffort-"))
			(void)part_drop_head(&part, "burstable-");
	}
	return part_drop_head(&part, "pod") && pod_take_uid(part, is_slice ? '_' : '-', ret_uid);
}

/* Other processes than a container's may be in the pod's own group, or beside its containers. */
static void pod_take_container(struct part part, char ret_id[POD_CONTAINER_LEN])
{
	(void)part_drop_tail(&part, ".scope");
	for (size_t i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]); i++) {
		if (part_drop_head(&part, runtimes[i]))
			break;
	}
	ret_id[0] = '\0';
	if (part.len != POD_CONTAINER_LEN - 1)
		return;
	for (size_t i = 0; i < part.len; i++) {
		if (!is_hex(part.at[i]))
			return;
	}
	memcpy(ret_id, part.at, part.len);
	ret_id[part.len] = '\0';
}

/* Whether the path leads into a pod: the outermost one, if there are pods in a pod. */
static bool pod_take_path(struct part path, struct pod_cgroup *ret)
{
	while (path.len > 0) {
		struct part component = part_next(&path, '/');
		struct part head = component;
		struct part slice = part_next(&head, ':'); /* "SLICE:RUNTIME:ID" */
		bool is_known = component.len == 0;

		if (pod_take_component(slice, ret->uid)) {
			if (slice.len < component.len)
				(void)part_next(&head, ':');
			else
				head = part_next(&path, '/');
			pod_take_container(head, ret->container);
			return true;
		}
		for (size_t i = 0; i < sizeof(ancestors) / sizeof(ancestors[0]); i++)
			is_known = is_known || part_is(component, ancestors[i]);
		if (!is_known)
			return false;
	}
	return false;
}

int pod_cgroup_parse(const char *text, size_t len, struct pod_cgroup *ret_pod)
{
	struct pod_cgroup pod = {.uid = ""};
	struct part rest = {text, len};

	while (rest.len > 0) {
		struct part line = part_next(&rest, '\n');
		struct pod_cgroup found;

		/* "HIERARCHY:CONTROLLERS:PATH" */
		(void)part_next(&line, ':');
		(void)part_next(&line, ':');
		if (!pod_take_path(line, &found))
			continue;
		if (*pod.uid && strcmp(pod.uid, found.uid) != 0)
			return POD_CGROUP_E_CONFLICT;
		if (!*pod.container)
			pod = found;
	}
	if (!*pod.uid)
		return POD_CGROUP_E_NONE;
	*ret_pod = pod;
	return 0;
}
