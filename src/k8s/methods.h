/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_METHODS_H
#define NVS_K8S_METHODS_H

/*
 * The methods of the kubelet's device plugin API, from the bytes of a request to the bytes of its
 * answer. An error has a code and a text, which the kubelet shows as an event of the pod.
 *
 * Pure, and safe for any bytes. Threading: none.
 */

#include "k8s/arena.h"
#include "k8s/devices.h"
#include "k8s/grpc_frame.h"
#include "k8s/plugin_options.h"

enum method {
	METHOD_OPTIONS,   /* GetDevicePluginOptions */
	METHOD_WATCH,     /* ListAndWatch */
	METHOD_PREFER,    /* GetPreferredAllocation */
	METHOD_ALLOCATE,  /* Allocate */
	METHOD_PRE_START, /* PreStartContainer, which is not asked for */
	METHOD_COUNT_
};

/* The answers depend on these; all is borrowed. */
struct methods {
	const struct devices *devices;
	const struct plugin_options *options;
	const char *library; /* the file on the host; NULL: there is none */
};

/* Zeroed before a call. methods_clear() gives the memory back. */
struct methods_answer {
	struct arena arena;
	enum grpc_code code;
	char text[GRPC_TEXT_LEN]; /* unless code is GRPC_OK */
	const uint8_t *bytes;     /* in the arena */
	size_t len;
};

/* The method of an HTTP/2 path; METHOD_COUNT_: there is none. */
enum method methods_find(const char *path);

/* METHOD_WATCH answers with the list of now. */
void methods_call(const struct methods *methods, enum method method, const uint8_t *bytes,
		  size_t len, struct methods_answer *ret);
void methods_clear(struct methods_answer *answer);

/* The request that registers the plugin at the kubelet, in answer->bytes. */
void methods_register(const char *resource, const char *endpoint, struct methods_answer *ret);

#define METHODS_REGISTER_PATH "/v1beta1.Registration/Register"

#endif
