/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_POD_CGROUP_H
#define NVS_DAEMON_POD_CGROUP_H

/*
 * The pod of a process, from its control groups: the kubelet makes one for each pod, and the
 * container runtime one for each container below it. A process cannot leave them by itself.
 *
 * These forms are known, of cgroup v1 and v2, in the view of the scheduler's own cgroup namespace:
 *
 *   driver of kubelet, runtime   path
 *   cgroupfs, cgroupfs           /kubepods/burstable/podUID/ID, and crio-ID
 *   systemd, systemd             /kubepods.slice/kubepods-burstable.slice/
 *                                kubepods-burstable-podUID.slice/cri-containerd-ID.scope, and
 *                                crio-ID.scope or docker-ID.scope
 *   systemd, cgroupfs            /system.slice/containerd.service/
 *                                kubepods-burstable-podUID.slice:cri-containerd:ID
 *   from within a pod, v2        /../../kubepods-besteffort-podUID.slice/cri-containerd-ID.scope
 *
 * Above the kubelet's groups there may be its --cgroup-root "kubelet", as in kind. Pods of the
 * class Guaranteed lack the component of the class. systemd's form of the UID has "_" in the place
 * of "-".
 *
 * A path counts only if all components above the pod are the kubelet's. A user may own a part of
 * the tree and choose names in it, but that part begins with others' components (user.slice).
 *
 * Pure. Threading: none.
 */

#include <stddef.h>

#define POD_UID_LEN       37 /* a UUID, or 32 digits of a static pod, and a NUL */
#define POD_CONTAINER_LEN 65

struct pod_cgroup {
	char uid[POD_UID_LEN];             /* "": of no pod */
	char container[POD_CONTAINER_LEN]; /* ID of the runtime; "": unknown */
};

enum {
	POD_CGROUP_E_SUCCESS_,
	POD_CGROUP_E_NONE,     /* the process is in no pod */
	POD_CGROUP_E_CONFLICT, /* hierarchies of v1 name different pods */
};

/*
 * text: /proc/PID/cgroup, len bytes. 0 or POD_CGROUP_E_*; *ret_pod is untouched then.
 */
int pod_cgroup_parse(const char *text, size_t len, struct pod_cgroup *ret_pod);

#endif
