/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/ticket_packet.h"

#include <errno.h>
#include <string.h>

_Static_assert(sizeof(struct ticket_packet) == 40 + sizeof(struct ticket_memory), "ticket_packet");

enum { HAS_MEMORY = 1, HAS_FIRST = 2, HAS_FDS = 4, HAS_REASON = 8 };

static const struct {
	enum ticket_sender sender;
	uint32_t has;
	uint32_t flags; /* those that it may have */
} types[] = {
	[TICKET_DEPOSIT] = {TICKET_FROM_PROGRAM, HAS_MEMORY | HAS_FIRST | HAS_FDS,
			    TICKET_SEEN | TICKET_OBEYS},
	[TICKET_WITHDRAW] = {TICKET_FROM_PROGRAM, 0, 0},
	[TICKET_OPEN] = {TICKET_FROM_PROGRAM, HAS_FIRST, TICKET_OBEYS},
	[TICKET_TAKEN] = {TICKET_FROM_SCHEDULER, 0, 0},
	[TICKET_MEMORY] = {TICKET_FROM_SCHEDULER, HAS_MEMORY | HAS_FIRST | HAS_FDS, 0},
	[TICKET_NONE] = {TICKET_FROM_SCHEDULER, HAS_REASON, 0},
	[TICKET_MOVE] = {TICKET_FROM_PROGRAM, 0, 0},
	[TICKET_OUT] = {TICKET_FROM_PROGRAM, HAS_MEMORY, TICKET_SEEN | TICKET_OBEYS},
	[TICKET_PARK] = {TICKET_FROM_PROGRAM, 0, 0},
	[TICKET_CLOSE] = {TICKET_FROM_PROGRAM, 0, 0},
};
_Static_assert(sizeof(types) / sizeof(types[0]) == TICKET_TYPE_COUNT_, "a row a type");

void ticket_packet_init(struct ticket_packet *ret, enum ticket_type type,
			const uint8_t ticket[TICKET_LEN])
{
	memset(ret, 0, sizeof(*ret));
	ret->magic = TICKET_PACKET_MAGIC;
	ret->version = TICKET_PACKET_VERSION;
	ret->type = (uint16_t)type;
	memcpy(ret->ticket, ticket, TICKET_LEN);
}

/* No card has so many bytes, and sums of two such numbers do not overflow. */
#define MEMORY_BYTES_MAX (1ull << 48)

bool ticket_memory_check(const struct ticket_memory *memory)
{
	if (!memory->size || memory->size > MEMORY_BYTES_MAX || !memory->chunk_size ||
	    memory->chunk_size > MEMORY_BYTES_MAX)
		return false;
	return memory->n_chunks >= 1 && memory->n_chunks <= TICKET_CHUNKS_MAX &&
	       memory->n_chunks == (memory->size + memory->chunk_size - 1) / memory->chunk_size &&
	       memory->bytes && memory->bytes <= memory->size &&
	       memory->offset <= memory->size - memory->bytes;
}

static bool ticket_is_zero(const void *bytes, size_t n)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < n; i++) {
		if (at[i])
			return false;
	}
	return true;
}

static bool ticket_chunks_check(const struct ticket_packet *packet, size_t n_fds)
{
	return packet->n >= 1 && packet->n <= TICKET_FDS_MAX && packet->n == n_fds &&
	       packet->first < packet->memory.n_chunks &&
	       packet->n <= packet->memory.n_chunks - packet->first;
}

bool ticket_packet_check(const struct ticket_packet *packet, size_t len, size_t n_fds,
			 enum ticket_sender sender)
{
	uint32_t has;

	if (len != sizeof(*packet) || packet->magic != TICKET_PACKET_MAGIC ||
	    packet->version != TICKET_PACKET_VERSION || packet->type >= TICKET_TYPE_COUNT_ ||
	    types[packet->type].sender != sender || packet->flags & ~types[packet->type].flags ||
	    ticket_is_zero(packet->ticket, TICKET_LEN))
		return false;
	has = types[packet->type].has;
	if (has & HAS_MEMORY ? !ticket_memory_check(&packet->memory)
			     : !ticket_is_zero(&packet->memory, sizeof(packet->memory)))
		return false;
	if (has & HAS_FDS ? !ticket_chunks_check(packet, n_fds) : n_fds || packet->n)
		return false;
	if (has & HAS_REASON ? packet->reason == TICKET_REASON_NONE_ ||
				       packet->reason >= TICKET_REASON_COUNT_
			     : packet->reason != TICKET_REASON_NONE_)
		return false;
	return has & HAS_FIRST ? packet->first < TICKET_CHUNKS_MAX : !packet->first;
}

int ticket_packet_send(int fd, const struct ticket_packet *packet, const int *fds)
{
	return pass_send_many(fd, packet, sizeof(*packet), fds, packet->n);
}

int ticket_packet_recv(int fd, enum ticket_sender sender, struct ticket_packet *ret,
		       struct pass_many *ret_pass)
{
	ssize_t n = pass_recv_many(fd, ret, sizeof(*ret), ret_pass);

	if (n < 0)
		return (int)n;
	if (n == 0)
		return -EPIPE;
	return ticket_packet_check(ret, (size_t)n, ret_pass->n, sender) ? 0 : -EBADMSG;
}
