/* SPDX-License-Identifier: Apache-2.0 */

/* The library's settings: one row each, in the order of the manual page. */

#include "hook/base/hook_options.h"

#include "ipc/names.h"
#include "util/clock.h"
#include "util/parse.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCK_DIR_MAX 92
_Static_assert(sizeof(((struct sockaddr_un *)0)->sun_path) - sizeof("/" NVSHARE_SOCK_NAME) ==
		       SOCK_DIR_MAX,
	       "the text below");

/* Makes the path absolute: the program may change its directory before it connects again. */
static int parse_sock_dir(const struct setting *setting, const char *value, void *field)
{
	char here[PATH_MAX] = "";
	size_t len = 0;

	if (*value != '/' && getcwd(here, sizeof(here)))
		len = strlen(here) + 1;
	if (len + strlen(value) > SOCK_DIR_MAX)
		return -ERANGE;
	(void)snprintf(field, setting->max, "%s%s%s", here, len ? "/" : "", value);
	return 0;
}

static void print_text(const void *field, char *buf, size_t size)
{
	(void)snprintf(buf, size, "%s", (const char *)field);
}

static const struct setting_form sock_dir_form = {
	.parse = parse_sock_dir,
	.print = print_text,
	.allowed = "a directory, its path of at most 92 bytes",
};

/* Cuts a text that is too long, because it is only shown. */
static int parse_text(const struct setting *setting, const char *value, void *field)
{
	(void)snprintf(field, setting->max, "%s", value);
	return 0;
}

static const struct setting_form text_form = {
	.parse = parse_text,
	.print = print_text,
	.allowed = "text",
};

/* A name that was cut could be another gang's. */
static int parse_gang(const struct setting *setting, const char *value, void *field)
{
	if (strlen(value) >= setting->max)
		return -ERANGE;
	(void)strcpy(field, value);
	return 0;
}

static const struct setting_form gang_form = {
	.parse = parse_gang,
	.print = print_text,
	.allowed = "text of at most 127 bytes",
};
_Static_assert(NVSHARE_GANG_LEN == 128, "the text above");

/* Checks the value. It is evaluated where the card's or the machine's size is known. */
static int parse_limit(const struct setting *setting, const char *value, void *field)
{
	uint64_t bytes = 0;
	int r = parse_size_or_percent(value, UINT64_MAX, &bytes);

	if (!r && (strlen(value) >= setting->max || bytes < setting->min))
		r = -ERANGE;
	if (!r)
		(void)strcpy(field, value);
	return r;
}

static const struct setting_form limit_form = {
	.parse = parse_limit,
	.print = print_text,
	.allowed = "a size like 20GiB, or a part like 50%",
};

/* hook_log.c reads it before any other setting, in the same way: any value but 0 is on. */
static int parse_debug(const struct setting *setting, const char *value, void *field)
{
	*(bool *)field = strcmp(value, "0") != 0;
	(void)setting;
	return 0;
}

static void print_debug(const void *field, char *buf, size_t size)
{
	(void)snprintf(buf, size, "%d", *(const bool *)field);
}

static const struct setting_form debug_form = {
	.parse = parse_debug,
	.print = print_debug,
	.allowed = "0 or 1",
};

/* Parts of a million. */
static int parse_ratio(const struct setting *setting, const char *value, void *field)
{
	uint64_t billionths;
	int r = parse_seconds(value, 1000, CLOCK_NS_PER_SEC, &billionths);

	if (!r)
		*(uint32_t *)field = (uint32_t)(billionths / 1000);
	(void)setting;
	return r;
}

static void print_ratio(const void *field, char *buf, size_t size)
{
	(void)snprintf(buf, size, "%g", *(const uint32_t *)field / 1e6);
}

static const struct setting_form ratio_form = {
	.parse = parse_ratio,
	.print = print_ratio,
	.allowed = "a ratio from 0.000001 to 1",
};

static const char *const backend_names[] = {
	[HOOK_OPTIONS_BACKEND_AUTO] = "auto",
	[HOOK_OPTIONS_BACKEND_VMM] = "vmm",
	[HOOK_OPTIONS_BACKEND_MANAGED] = "managed",
	[HOOK_OPTIONS_BACKEND_NONE] = "none",
};

static const char *const rdma_names[] = {
	[HOOK_OPTIONS_RDMA_STAY] = "stay",
	[HOOK_OPTIONS_RDMA_IGNORE] = "ignore",
};

#define SEC ((uint64_t)CLOCK_NS_PER_SEC)
#define MS  ((uint64_t)CLOCK_NS_PER_MS)
#define US  ((uint64_t)1000)

#define ROW(name, its_kind, field, type, least, most, text, ...)                        \
	{                                                                               \
		.variable = (name), .kind = SETTING_##its_kind,                         \
		.offset = SETTING_AT(struct hook_options, field, type), .min = (least), \
		.max = (most), .help = (text), __VA_ARGS__                              \
	}
#define WORD(name, field, type, words, text) \
	ROW(name, ENUM, field, type, 0, sizeof(words) / sizeof((words)[0]), text, .names = (words))
#define SWITCH(name, field, text) ROW(name, BOOL, field, bool, 0, 1, text)
#define OWN(name, field, its_form, text, ...)                                               \
	{                                                                                   \
		.variable = (name), .kind = SETTING_OWN,                                    \
		.offset = offsetof(struct hook_options, field),                             \
		.max = sizeof(((struct hook_options *)0)->field), .form = &its_form##_form, \
		.help = (text), __VA_ARGS__                                                 \
	}

const struct setting hook_options_table[] = {
	OWN("NVSHARE_SOCK_DIR", sock_dir, sock_dir, "directory of the scheduler's socket"),
	SWITCH("NVSHARE_REQUIRE_SCHEDULER", require_scheduler,
	       "without a scheduler the first context fails"),
	ROW("NVSHARE_ORPHAN_TIMEOUT_SEC", SECONDS, orphan_ns, uint64_t, 0, 86400 * SEC,
	    "a program waits so long for a lost scheduler"),
	OWN("NVSHARE_NAME", name, text, "the name in the status", .unset = "the command"),
	OWN("NVSHARE_POD", pod, text, "the pod in the status", .unset = "$POD_NAMESPACE/$POD_NAME"),
	OWN("NVSHARE_DEBUG", debug, debug, "what the library does, on standard error"),

	WORD("NVSHARE_MEMORY_BACKEND", backend, enum hook_options_backend, backend_names,
	     "how memory is made that can move"),
	OWN("NVSHARE_GPU_MEMORY_LIMIT", memory_limit, limit, "the card that the program sees",
	    .min = 1, .unset = "the whole card"),
	OWN("NVSHARE_HOST_MEMORY_LIMIT", host_memory_limit, limit,
	    "host memory that the programs of a node may take for evicted bytes",
	    .unset = "all that the machine can spare"),
	SWITCH("NVSHARE_ENABLE_SINGLE_OVERSUB", single_oversub,
	       "one program may use more memory than the card has"),
	SWITCH("NVSHARE_IPC", ipc,
	       "plain, pinned cuMemAlloc, which the driver's own IPC handles share"),
	SWITCH("NVSHARE_IPC_MOVES", ipc_moves,
	       "memory that the program shares by CUDA IPC moves with its gang"),
	WORD("NVSHARE_RDMA", rdma, enum hook_options_rdma, rdma_names,
	     "ignore: no GPU memory of the program is registered with a device"),
	SWITCH("NVSHARE_TRANSFER", transfer, "memory may be handed over between programs"),
	SWITCH("NVSHARE_CLEAN", clean,
	       "memory that has not changed since its last copy is not copied again"),
	SWITCH("NVSHARE_HOST_SLABS", host_slabs,
	       "evicted bytes go to host memory that the programs of a node use in turn"),

	ROW("NVSHARE_DRAIN_MS", MS, drain_ns, uint64_t, 0, 600000 * MS,
	    "a stop lets submitted work end for so long"),
	ROW("NVSHARE_DRAIN_MAX_MS", MS, drain_max_ns, uint64_t, 1 * MS, 600000 * MS,
	    "a stop waits so long for work that can not be frozen"),
	ROW("NVSHARE_COPY_MAX_MS", MS, copy_max_ns, uint64_t, 1 * MS, 600000 * MS,
	    "the copy of a piece of memory may take so long"),
	SWITCH("NVSHARE_FREEZE", freeze, "the program may be frozen in the middle of a kernel"),
	ROW("NVSHARE_IDLE_MS", MS, idle_ns, uint64_t, 1 * MS, 3600000 * MS,
	    "after so long without work the program gives the GPU up for those that wait"),

	ROW("NVSHARE_PRIORITY", ENUM, claim.priority, uint32_t, 0, NVSHARE_PRIORITY_COUNT,
	    "the class that the program claims", .names = names_priority),
	SWITCH("NVSHARE_LATENCY_CRITICAL", latency_critical, "the same as class critical"),
	ROW("NVSHARE_WEIGHT", NUMBER, claim.weight, uint32_t, NVSHARE_WEIGHT_MIN,
	    NVSHARE_WEIGHT_MAX, "share of the GPU's time among equals"),
	ROW("NVSHARE_SLO_MS", SLO, claim.slo_us, uint32_t, 1, NVSHARE_SLO_US_MAX,
	    "how long a request may take", .unset = "none"),
	ROW("NVSHARE_COMPUTE_LIMIT", NUMBER, claim.compute_limit, uint32_t, 1, 100,
	    "percent of the GPU's time that the program gets at the most", .unset = "none"),
	ROW("NVSHARE_BURST_IDLE_US", US, burst_idle_ns, uint64_t, 100 * US, 1000000 * US,
	    "a critical program that was idle for so long has ended a request"),

	OWN("NVSHARE_GANG", gang, gang, "programs of one name compute together, or not at all",
	    .unset = "none"),
	ROW("NVSHARE_GANG_SIZE", NUMBER, gang_size, uint32_t, 0, NVSHARE_GANG_MEMBERS_MAX,
	    "none of the gang runs before so many of its programs have come"),
	SWITCH("NVSHARE_GANG_AUTO", gang_auto, "the workers of a known launcher are a gang"),

	OWN("NVSHARE_ORION_SM_THRESHOLD", orion_sm_ppm, ratio,
	    "best-effort threads may fill this part of the GPU beside thread 0"),
	OWN("NVSHARE_ORION_DUR_THRESHOLD", orion_dur_ppm, ratio,
	    "and this part of its latency in submitted work"),
	ROW("NVSHARE_ORION_HP_LATENCY_MS", SLO, orion_latency_us, uint32_t, 1, 60000000,
	    "how long a request of thread 0 takes"),
	ROW("NVSHARE_ORION_POLL_INTERVAL_US", US, orion_poll_ns, uint64_t, 1 * US, 1000000 * US,
	    "a thread that waits looks for completed work so often"),
	SWITCH("NVSHARE_ORION_INTERFERENCE_AWARE", orion_interference_aware,
	       "kernels that need the same resource do not run beside each other"),
	ROW("NVSHARE_ORION_DEVICE", NUMBER, orion_device, uint32_t, 0, 63,
	    "the ordinal of the GPU that is scheduled"),
};
const size_t hook_options_table_len = sizeof(hook_options_table) / sizeof(hook_options_table[0]);
