/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes to a message, for each receiver: as a packet, and as a message's number and its
 * body, which mutations reach without magic, version and size. What is accepted must be whole:
 * encoding its body again gives the same bytes, and every string ends.
 */

#include "ipc/msg.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int fuzz_left_out(void);

static bool was_accepted[UINT8_MAX];

static void check(const uint8_t *data, size_t size, enum msg_to to)
{
	struct msg again;
	struct msg msg;
	int r = msg_decode(data, size, to, &msg);

	if (r < 0 || !strcmp(msg_error(r), "?"))
		abort();
	if (r)
		return;
	was_accepted[msg.header.type] = true;
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

static void check_for_all(const uint8_t *data, size_t size)
{
	check(data, size, MSG_TO_SCHEDULER);
	check(data, size, MSG_TO_CLIENT);
	check(data, size, MSG_TO_TOOL);
}

int fuzz_left_out(void)
{
	for (int i = 0; i < UINT8_MAX; i++) {
		if (msg_size((uint16_t)i) && !was_accepted[i])
			return i;
	}
	return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct msg given = {0}, msg;

	check_for_all(data, size);
	if (size == 0 || size > sizeof(given.body) || !msg_size(data[0]))
		return 0;
	memcpy(&given.body, data + 1, size - 1);
	size = msg_encode(data[0], 0, &given.body, &msg);
	check_for_all((const uint8_t *)&msg, size);
	return 0;
}
