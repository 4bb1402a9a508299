/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_METHODS_PRIVATE_H
#define NVS_K8S_METHODS_PRIVATE_H

/* Shared by methods.c and allocate.c. */

#include "k8s/deviceplugin.pb-c.h"
#include "k8s/methods.h"

/* Fails the call. Returns NULL. */
__attribute__((format(printf, 3, 4))) void *methods_fail(struct methods_answer *answer,
							 enum grpc_code code, const char *format,
							 ...);

/* Memory of the answer; NULL: the call has failed. */
void *methods_take(struct methods_answer *answer, size_t size);

/* A message of the answer; init: its type's __init(). NULL: the call has failed. */
#define METHODS_NEW(answer, type, init)                                   \
	({                                                                \
		type *new_message = methods_take((answer), sizeof(type)); \
		if (new_message)                                          \
			init(new_message);                                \
		new_message;                                              \
	})

/* An array of n pointers; NULL: the call has failed. */
#define METHODS_ARRAY(answer, type, n) ((type **)methods_take(answer, ((n) + 1) * sizeof(type *)))

/* A text in the answer; NULL: the call has failed. */
__attribute__((format(printf, 2, 3))) char *methods_print(struct methods_answer *answer,
							  const char *format, ...);

/*
 * The answer to one container of Allocate. number: of the container, from 1. taken: devices of the
 * containers before, to which these are added. NULL: the call has failed.
 */
V1beta1__ContainerAllocateResponse *allocate_container(
	const struct methods *methods, const V1beta1__ContainerAllocateRequest *request,
	size_t number, struct devices_set *taken, struct methods_answer *answer);

#endif
