/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_PREFER_H
#define NVS_K8S_PREFER_H

/*
 * Which devices a container should get: all of one GPU, of the GPU with the least load.
 *
 * The load of a GPU is the sum of these:
 *
 *     GPU time of the last seconds, in thousandths
 *     memory that is asked for, in thousandths of the GPU's
 *     PREFER_WAITER for each client that waits
 *     PREFER_COMING for each device in use that has no client yet
 *
 * Of GPUs with the same load, the one with fewer devices in use comes first. While the scheduler
 * does not answer, only the devices in use count.
 *
 * A device is in use if the kubelet does not offer it. So a restart of the plugin forgets nothing.
 *
 * Pure. Threading: none.
 */

#include "k8s/devices.h"

#define PREFER_WAITER 250 /* a quarter of a GPU */
#define PREFER_COMING 500 /* half a GPU: what the pod will do is not known */

/* The kubelet's question. */
struct prefer_question {
	const struct devices_at *musts;  /* the container has these already */
	const struct devices_at *others; /* what it may have besides; no device stands twice */
	size_t n_musts, n_others;
	size_t n_wanted; /* from n_musts to n_musts + n_others */
};

/* Fills ret with n_wanted devices: the musts first. */
void prefer_choose(const struct devices *devices, const struct prefer_question *question,
		   struct devices_at *ret);

#endif
