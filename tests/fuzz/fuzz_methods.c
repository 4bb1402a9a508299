/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes as a request of the kubelet. The first byte chooses the method, the second the memory
 * that the call may have: a failure in the middle leaves nothing behind. An answer is one that the
 * method's type can be read from; an error has a code and a text.
 */

#include "k8s/deviceplugin.pb-c.h"
#include "k8s/methods.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int fuzz_left_out(void);

/* Of each method: an answer, and an error. */
static bool was_seen[METHOD_COUNT_][2];

int fuzz_left_out(void)
{
	for (int i = 0; i < METHOD_COUNT_; i++) {
		if (!was_seen[i][0] || !was_seen[i][1])
			return i;
	}
	return -1;
}

static void check(enum method method, const struct methods_answer *answer)
{
	static const ProtobufCMessageDescriptor *const types[METHOD_COUNT_] = {
		[METHOD_OPTIONS] = &v1beta1__device_plugin_options__descriptor,
		[METHOD_WATCH] = &v1beta1__list_and_watch_response__descriptor,
		[METHOD_PREFER] = &v1beta1__preferred_allocation_response__descriptor,
		[METHOD_ALLOCATE] = &v1beta1__allocate_response__descriptor,
		[METHOD_PRE_START] = &v1beta1__pre_start_container_response__descriptor,
	};
	ProtobufCMessage *message;

	was_seen[method][answer->code != GRPC_OK] = true;
	if (answer->code != GRPC_OK) {
		if (!answer->text[0] || answer->code > GRPC_CODE_MAX || answer->bytes)
			abort();
		return;
	}
	message = protobuf_c_message_unpack(types[method], NULL, answer->len, answer->bytes);
	if (!message)
		abort();
	protobuf_c_message_free_unpacked(message, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct devices devices = {
		.n = 2,
		.n_replicas = 3,
		.is_known = true,
		.is_live = true,
		.gpus = {{.load.uuid = "GPU-a", .is_listed = true, .numa = 1, .minor = 0},
			 {.load.uuid = "GPU-b", .is_listed = true, .numa = -1, .minor = -1}},
	};
	struct plugin_options options;
	const struct methods methods = {&devices, &options, "/lib.so"};
	struct methods_answer answer = {.code = GRPC_OK};
	enum method method;

	if (size < 2)
		return 0;
	plugin_options_default(&options);
	method = (enum method)(data[0] % METHOD_COUNT_);
	options.inject = (enum plugin_inject)(data[0] / METHOD_COUNT_ % PLUGIN_INJECT_COUNT_);
	if (data[1])
		answer.arena.used = ARENA_MAX - 256u * data[1];
	methods_call(&methods, method, data + 2, size - 2, &answer);
	check(method, &answer);
	methods_clear(&answer);
	return 0;
}
