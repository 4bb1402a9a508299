/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_FAKE_TICKET_DESCRIPTORS_H
#define NVS_TESTS_HOOK_FAKE_TICKET_DESCRIPTORS_H

/* The part of ticket_link.h that handles descriptors, for tests whose descriptors are numbers. */

#include "hook/tickets/ticket_link.h"

int ticket_hand(int fd)
{
	return fd;
}

int ticket_drop(int fd)
{
	(void)fd;
	return -1;
}

void ticket_link_after_fork_child(void)
{
}

#endif
