/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes to a message, for each receiver. What is accepted must be whole: encoding
 * its body again gives the same bytes, and every string ends.
 */

#include "ipc/msg.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const uint8_t *data, size_t size, enum msg_to to)
{
	struct msg again;
	struct msg msg;
	int r = msg_decode(data, size, to, &msg);

	if (r < 0 || !strcmp(msg_error(r), "?"))
		abort();
	if (r)
		return;
	if (msg_size(msg.header.type) != size || msg.header.size != size)
		abort();
	if (msg_encode(msg.header.type, msg.header.seq, &msg.body, &again) != size ||
	    memcmp(&again, data, size) != 0)
		abort();
	if (msg.header.type == NVSHARE_MSG_REGISTER &&
	    (strlen(msg.body.registration.name) >= NVSHARE_NAME_LEN ||
	     strlen(msg.body.registration.pod) >= NVSHARE_POD_LEN))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check(data, size, MSG_TO_SCHEDULER);
	check(data, size, MSG_TO_CLIENT);
	check(data, size, MSG_TO_TOOL);
	return 0;
}
