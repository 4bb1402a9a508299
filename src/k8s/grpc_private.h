/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_GRPC_PRIVATE_H
#define NVS_K8S_GRPC_PRIVATE_H

/* Shared by grpc.c and grpc_answer.c. */

#include "k8s/grpc.h"

#include <nghttp2/nghttp2.h>

/* A header of two texts. */
#define GRPC_HEADER(header_name, header_value)                       \
	((nghttp2_nv){.name = (uint8_t *)(uintptr_t)(header_name),   \
		      .value = (uint8_t *)(uintptr_t)(header_value), \
		      .namelen = strlen(header_name),                \
		      .valuelen = strlen(header_value)})

/* Ends a call whose content-type or method is not gRPC's, as HTTP says it. */
void grpc_refuse_media(struct grpc_call *call);

/* Gives bytes of call->out to nghttp2. */
ssize_t grpc_on_read(nghttp2_session *session, int32_t stream, uint8_t *buf, size_t size,
		     uint32_t *ret_flags, nghttp2_data_source *source, void *user);

/* Gives the memory of the request back. */
void grpc_release_input(struct grpc_call *call);

#endif
