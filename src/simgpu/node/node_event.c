/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Errors on demand: lines of <dir>/inject become events, which every process of the node sees
 * once. A process reads and empties the file under the node's lock, so exactly one process
 * takes a line.
 */

#include "simgpu/node/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { XID_OFF_THE_BUS = 79, XID_GSP_TIMEOUT = 119 };

static void push_event(uint32_t kind, uint32_t gpu, uint64_t data)
{
	struct node_shared *shared = node_view.shared;
	struct node_event *event = &shared->events[shared->last_event % NODE_EVENTS_MAX];

	*event = (struct node_event){shared->last_event + 1, kind, gpu, data};
	shared->last_event++;
}

static void set_lost(uint32_t gpu, uint32_t is_lost)
{
	uint32_t per_gpu = node_view.shared->config.n_mig ? node_view.shared->config.n_mig : 1, i;

	for (i = 0; i < per_gpu; i++)
		node_view.shared->device[gpu * per_gpu + i].is_lost = is_lost;
}

static void take_inject_line(const char *line)
{
	uint32_t per_gpu = node_view.shared->config.n_mig ? node_view.shared->config.n_mig : 1;
	unsigned int gpu = 0, xid = 0;
	char what[16] = "";

	if (sscanf(line, "xid %u gpu %u", &xid, &gpu) == 2 &&
	    gpu < node_view.shared->config.n_gpus) {
		push_event(NODE_EVENT_XID, gpu, xid);
		if (xid == XID_OFF_THE_BUS || xid == XID_GSP_TIMEOUT)
			set_lost(gpu, 1);
	} else if (sscanf(line, "ecc %15s gpu %u", what, &gpu) == 2 &&
		   gpu < node_view.shared->config.n_gpus) {
		bool is_double = strcmp(what, "double") == 0;

		node_view.shared->device[gpu * per_gpu].ecc_errors[is_double]++;
		push_event(is_double ? NODE_EVENT_ECC_DOUBLE : NODE_EVENT_ECC_SINGLE, gpu, 0);
	} else if (sscanf(line, "recover gpu %u", &gpu) == 1 &&
		   gpu < node_view.shared->config.n_gpus) {
		set_lost(gpu, 0);
	} else if (*line) {
		node_debug("inject: cannot read '%s'", line);
	}
}

void node_inject_poll(void)
{
	char path[sizeof(node_view.dir) + 16], buf[4096], *rest = buf, *line;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/inject", node_view.dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	node_lock();
	n = read(fd, buf, sizeof(buf) - 1);
	/* If the last line has no newline, its writer is not done. */
	if (n > 0 && buf[n - 1] == '\n' && ftruncate(fd, 0) == 0) {
		buf[n] = '\0';
		while ((line = strsep(&rest, "\n")))
			take_inject_line(line);
	}
	node_unlock();
	close(fd);
}

bool node_event_next(uint64_t *last, struct node_event *ret)
{
	struct node_shared *shared = node_view.shared;
	bool is_found = false;

	node_lock();
	if (shared->last_event > *last + NODE_EVENTS_MAX)
		*last = shared->last_event - NODE_EVENTS_MAX;
	if (shared->last_event > *last) {
		*ret = shared->events[*last % NODE_EVENTS_MAX];
		++*last;
		is_found = true;
	}
	node_unlock();
	return is_found;
}
