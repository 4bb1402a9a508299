/* SPDX-License-Identifier: Apache-2.0 */
#include "patience.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SECOND_MS 1000

int patience_ms(void)
{
	return (getenv("TEST_ALONE") ? 300 : 120) * SECOND_MS;
}

bool patience_poll(int fd, pid_t other)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};

	if (poll(&pfd, 1, patience_ms()) == 1)
		return true;
	patience_show(other);
	return false;
}

void patience_show(pid_t other)
{
	char command[64];

	(void)snprintf(command, sizeof(command), "scripts/stacks %d %d", (int)getpid(), (int)other);
	(void)fflush(stdout);
	if (system(command) != 0)
		printf("no stacks: scripts/stacks runs in the folder of the sources\n");
}
