/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/slab_packet.h"

#include <errno.h>
#include <string.h>

_Static_assert(sizeof(struct slab_packet) == 24 + 8 * SLAB_IDS_MAX, "slab_packet");

enum { HAS_NODE = 1, HAS_IDS = 2, HAS_FDS = 4, HAS_BYTES = 8, HAS_ZERO = 16 };

static const struct {
	enum slab_sender sender;
	uint32_t has;
	uint32_t n_max;
} types[] = {
	[SLAB_WANT] = {SLAB_FROM_CLIENT, HAS_NODE, SLAB_WANT_MAX},
	[SLAB_OFFER] = {SLAB_FROM_CLIENT, HAS_NODE | HAS_IDS | HAS_FDS, SLAB_IDS_MAX},
	[SLAB_RETURN] = {SLAB_FROM_CLIENT, HAS_IDS, SLAB_IDS_MAX},
	[SLAB_BAD] = {SLAB_FROM_CLIENT, HAS_IDS, SLAB_IDS_MAX},
	[SLAB_UNMADE] = {SLAB_FROM_CLIENT, 0, SLAB_WANT_MAX},
	[SLAB_UNUSED] = {SLAB_FROM_CLIENT, HAS_BYTES | HAS_ZERO, 0},
	[SLAB_LENT] = {SLAB_FROM_SCHEDULER, HAS_NODE | HAS_IDS | HAS_FDS, SLAB_IDS_MAX},
	[SLAB_MAY_MAKE] = {SLAB_FROM_SCHEDULER, HAS_NODE, SLAB_WANT_MAX},
	[SLAB_NONE] = {SLAB_FROM_SCHEDULER, HAS_NODE, SLAB_WANT_MAX},
	[SLAB_WANTED] = {SLAB_FROM_SCHEDULER, HAS_ZERO, SLAB_WANT_MAX},
};
_Static_assert(sizeof(types) / sizeof(types[0]) == SLAB_TYPE_COUNT_, "a row a type");

void slab_packet_init(struct slab_packet *ret, enum slab_type type, uint32_t n, uint32_t node)
{
	memset(ret, 0, sizeof(*ret));
	ret->magic = SLAB_PACKET_MAGIC;
	ret->version = SLAB_PACKET_VERSION;
	ret->type = (uint16_t)type;
	ret->n = n;
	ret->node = node;
}

/* n_ids of them are used; the others are zero. */
static bool slab_ids_are_good(const uint64_t *ids, uint32_t n_ids)
{
	for (uint32_t i = 0; i < SLAB_IDS_MAX; i++) {
		if ((ids[i] != 0) != (i < n_ids))
			return false;
		for (uint32_t k = 0; k < i && i < n_ids; k++) {
			if (ids[k] == ids[i])
				return false;
		}
	}
	return true;
}

bool slab_packet_check(const struct slab_packet *packet, size_t len, size_t n_fds,
		       enum slab_sender sender)
{
	uint32_t has;

	if (len != sizeof(*packet) || packet->magic != SLAB_PACKET_MAGIC ||
	    packet->version != SLAB_PACKET_VERSION || packet->type >= SLAB_TYPE_COUNT_ ||
	    types[packet->type].sender != sender)
		return false;
	has = types[packet->type].has;
	return packet->n <= types[packet->type].n_max && (packet->n || has & HAS_ZERO) &&
	       packet->node < (has & HAS_NODE ? SLAB_NODE_MAX : 1) &&
	       (has & HAS_BYTES || !packet->bytes) && n_fds == (has & HAS_FDS ? packet->n : 0) &&
	       slab_ids_are_good(packet->ids, has & HAS_IDS ? packet->n : 0);
}

int slab_packet_send(int fd, const struct slab_packet *packet, const int *fds, size_t n)
{
	return pass_send_many(fd, packet, sizeof(*packet), fds, n);
}

int slab_packet_recv(int fd, enum slab_sender sender, struct slab_packet *ret,
		     struct pass_many *ret_pass)
{
	ssize_t n = pass_recv_many(fd, ret, sizeof(*ret), ret_pass);

	if (n < 0)
		return (int)n;
	if (n == 0)
		return -EPIPE;
	return slab_packet_check(ret, (size_t)n, ret_pass->n, sender) ? 0 : -EBADMSG;
}
