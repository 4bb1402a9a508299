/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_PLUGIN_H
#define NVS_K8S_PLUGIN_H

/*
 * The device plugin: the kubelet on one side, the scheduler on the other, and the table of devices
 * between them.
 *
 * Ownership: the plugin owns all of its modules; options are borrowed. Threading: none.
 */

#include "k8s/devices.h"
#include "k8s/kubelet.h"
#include "k8s/plugin_options.h"
#include "k8s/scheduler_link.h"

#define PLUGIN_PEERS_MAX 16            /* connections; a kubelet has one or two */
#define PLUGIN_PREFER_NS 1000000000ull /* a status that takes longer is not waited for */

struct plugin {
	const struct plugin_options *options;
	struct loop loop;
	struct event_source signals;
	int signal_fd;
	bool is_ending;
	struct devices devices;
	uint64_t version; /* of the list that the kubelet sees; 0: there is none yet */
	struct scheduler_link link;
	struct loop_timer grace;
	struct kubelet kubelet;
	struct grpc_service service;
	struct transport peers[PLUGIN_PEERS_MAX];
	struct grpc_call *watchers; /* ListAndWatch; mark: the version that was sent */
	struct grpc_call *waiting;  /* GetPreferredAllocation; mark: the status that it waits for */
	uint32_t n_watchers;
	struct loop_timer patience; /* of the first one that waits */
};

/* plugin: zeroed. 0 or -errno, logged; plugin_deinit() is allowed (and needed) either way. */
int plugin_init(struct plugin *plugin, const struct plugin_options *options);
void plugin_deinit(struct plugin *plugin);

/* Until a signal ends it. 0 or -errno, logged. */
int plugin_run(struct plugin *plugin);

#endif
