/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_PODS_H
#define NVS_DAEMON_PODS_H

/*
 * The user at the other end of a connection: a uid, or a pod of Kubernetes.
 *
 * Images choose the uids and gids in their containers, so those tell nothing there. The kernel
 * names the pod (daemon/peers/pod_cgroup.h), and the kubelet its namespace and name: it makes a
 * folder NAMESPACE_NAME_UID for each pod in NVSHARE_PODS_DIR. A pod's namespace counts as a user,
 * which nobody trusts. If the folder does not tell, each pod counts as a user.
 *
 * Not a pod are the scheduler's own one, where its operator calls tools, and containers that the
 * kubelet did not make.
 *
 * Threading: the loop's.
 */

#include "daemon/peers/pod_cgroup.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct server;
struct sock_peer;

#define PODS_NAMESPACE_LEN 64
#define PODS_OWNER_LEN     (PODS_NAMESPACE_LEN + 16)

/* With connections or jobs at a time. Further ones count as one user; a node has some hundred pods.
 */
#define PODS_OWNERS_MAX 1024

/* Owners from here on are namespaces or pods. Distributions give no such uids. */
#define PODS_OWNER_FIRST 0xf0000000u

enum pod_kind {
	POD_KIND_NONE, /* of no pod: uid and groups tell who it is */
	POD_KIND_POD,
	POD_KIND_UNSEEN, /* ended before the look, or of another pid namespace: no rights */
};

struct pod {
	enum pod_kind kind;
	uint32_t owner; /* uid, number of a pod's namespace, or QUOTA_NOBODY */
	struct pod_cgroup group;
	char name[NVSHARE_POD_LEN]; /* namespace/name, cut, or the UID; "": of no pod */
};

struct pods_owner {
	uint32_t n_holds;              /* its peers, and its jobs that have not ended */
	char name[PODS_NAMESPACE_LEN]; /* of the namespace; or "pod UID" */
};

struct pods {
	const char *proc;      /* "/proc" */
	struct pod_cgroup own; /* the scheduler's; uid "": none, or its cgroup namespace hides it */
	bool is_told;          /* that the folder is not trusted */
	uint32_t n_owners;     /* places of owners that have been used */
	struct pods_owner owners[PODS_OWNERS_MAX + 1];
};

/* pods: zeroed. proc is borrowed. */
void pods_init(struct pods *pods, const char *proc);

/*
 * The process that connected fd. pods_leave() ends what is counted.
 * dir: of the kubelet's folders; it must belong to root or to the scheduler's user, who alone write
 * there.
 */
void pods_join(struct pods *pods, const char *dir, int fd, const struct sock_peer *cred,
	       struct pod *ret);
void pods_leave(struct pods *pods, const struct pod *pod);

/*
 * The same for the process pid, of which pidfd is a descriptor, without a connection. false: it is
 * in no pod, or it cannot be seen whether it is. Then there is nothing to leave.
 */
bool pods_join_process(struct pods *pods, const char *dir, pid_t pid, int pidfd, struct pod *ret);

/* A namespace keeps its number until pods_release(), also without peers. Users have theirs. */
void pods_hold(struct pods *pods, uint32_t owner);
void pods_release(struct pods *pods, uint32_t owner);

/* The namespace of pod; NULL: it is not known, or this is no pod. It lives until pods_leave(). */
const char *pods_namespace(const struct pods *pods, const struct pod *pod);

/* "uid 1000", "namespace ml", "pod UID" or "others", for people. */
void pods_print_owner(const struct pods *pods, uint32_t owner, char buf[PODS_OWNER_LEN]);

#endif
