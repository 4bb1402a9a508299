/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_SLAB_LINK_H
#define NVS_HOOK_SLAB_LINK_H

/*
 * The pair on which slabs are borrowed and returned (ipc/slab_packet.h): our end of it. No call
 * waits for longer than it says. Any error but -EAGAIN ends the pair.
 *
 * Threading: the agent's thread, but for slab_link_after_fork_child().
 */

#include "ipc/slab_packet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void slab_link_open(int fd); /* takes fd; an earlier pair ends */
void slab_link_close(void);
bool slab_link_is_up(void);
int slab_link_fd(void); /* for poll(); -1: none */

/* Sends packet with copies of n descriptors. 0 or -errno; -EAGAIN: not now. */
int slab_link_send(const struct slab_packet *packet, const int *fds, size_t n);

/*
 * Waits for a packet until until_ns (clock_now_ns(); 0: not at all). 0: *ret_pass has its
 * descriptors, which are the caller's. -EAGAIN: none came. Other errors leave *ret_pass empty.
 */
int slab_link_receive(struct slab_packet *ret, struct pass_many *ret_pass, uint64_t until_ns);

void slab_link_after_fork_child(void);

#endif
