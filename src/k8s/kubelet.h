/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_KUBELET_H
#define NVS_K8S_KUBELET_H

/*
 * The plugin's socket in the kubelet's folder, and its registration there.
 *
 * A kubelet that starts deletes all sockets of the folder, makes its own, and knows no plugin. So
 * the folder is watched (inotify), or looked at each second where the node's limits leave no watch.
 * The plugin binds its socket again when it is gone, and registers
 * when a kubelet's socket is new. A registration that fails, or that no ListAndWatch follows, is
 * tried again, later each time. Nothing blocks: a newer kubelet calls the plugin before it answers
 * Register.
 *
 * A lock on the folder keeps a second plugin out. The folder may be missing, or be made anew.
 *
 * Ownership: the kubelet owns its descriptors; strings are borrowed. Threading: none.
 */

#include "k8s/transport.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#define KUBELET_SOCK         "kubelet.sock"
#define KUBELET_RETRY_MIN_NS 100000000ull
#define KUBELET_RETRY_MAX_NS 30000000000ull
#define KUBELET_WATCH_NS     10000000000ull /* after Register, time for ListAndWatch to come */
#define KUBELET_LOOK_NS      1000000000ull
#define KUBELET_BACKLOG      16

enum kubelet_state {
	KUBELET_NO_FOLDER,  /* tried again by the timer */
	KUBELET_ABSENT,     /* no kubelet's socket: the folder's news are waited for */
	KUBELET_DUE,        /* to be registered by the timer */
	KUBELET_ASKED,      /* the answer to Register is waited for */
	KUBELET_REGISTERED, /* the timer looks whether somebody watches */
};

enum {
	KUBELET_E_SUCCESS_,
	KUBELET_E_TAKEN, /* another plugin has the folder */
	KUBELET_E_LONG,  /* the path of a socket there has more bytes than the system takes */
};

struct kubelet;

struct kubelet {
	struct loop *loop;
	const char *dir, *resource;
	char endpoint[NAME_MAX]; /* the own socket's name */
	/* Takes the descriptor of a new connection. */
	void (*on_connection)(struct kubelet *kubelet, int fd);
	enum kubelet_state state;
	int dir_fd, watch_fd, listen_fd; /* -1: none */
	struct event_source watch, listener;
	struct loop_timer timer;
	struct loop_timer look; /* where there is no watch */
	uint64_t retry_ns;
	struct transport client;
	bool is_client_done;
	uint32_t n_watchers;
	dev_t bound_dev; /* the own socket's file */
	ino_t bound_ino;
	ino_t seen_ino; /* the kubelet's socket, when it was looked at */
	struct timespec seen_time;
};

/*
 * kubelet: zeroed. 0 or KUBELET_E_*. A folder that is missing is no error. kubelet_close() is
 * allowed either way.
 */
int kubelet_open(struct kubelet *kubelet, struct loop *loop, const char *dir, const char *resource,
		 void (*on_connection)(struct kubelet *kubelet, int fd));
void kubelet_close(struct kubelet *kubelet);

/* So many ListAndWatch streams are open now. */
void kubelet_note_watchers(struct kubelet *kubelet, uint32_t n);

/* Sends what can be sent now; once a round. */
void kubelet_flush(struct kubelet *kubelet);

#endif
