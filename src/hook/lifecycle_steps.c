/* SPDX-License-Identifier: Apache-2.0 */

/* The order in which the rooms hear of a fork, and of the process's end. */

#include "hook/agent/agent.h"
#include "hook/base/lifecycle.h"
#include "hook/clean/hash.h"
#include "hook/freeze/freeze.h"
#include "hook/gate/bell.h"
#include "hook/gate/device.h"
#include "hook/gate/gate.h"
#include "hook/gate/green.h"
#include "hook/memory/budget.h"
#include "hook/memory/context_cost.h"
#include "hook/memory/rdma.h"
#include "hook/orion/orion.h"
#include "hook/pager/pager.h"
#include "hook/pools/pools.h"
#include "hook/table/elf_object.h"
#include "hook/tickets/tickets.h"

/* One a line. */
/* clang-format off */
lifecycle_step *const lifecycle_on_fork_child[] = {
	agent_after_fork_child,
	bell_after_fork_child,
	gate_after_fork_child,
	device_after_fork_child,
	green_after_fork_child,
	budget_after_fork_child,
	context_cost_after_fork_child,
	pager_after_fork_child,
	hash_after_fork_child,
	pools_after_fork_child,
	tickets_after_fork_child,
	rdma_after_fork_child,
	freeze_after_fork_child,
	orion_after_fork_child,
	elf_object_after_fork_child,
	NULL,
};
/* clang-format on */

/* The agent first: it may be about to freeze, or to thaw. */
lifecycle_step *const lifecycle_on_exit[] = {agent_stop, freeze_stop, NULL};
