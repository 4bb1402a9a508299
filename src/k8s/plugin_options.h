/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_PLUGIN_OPTIONS_H
#define NVS_K8S_PLUGIN_OPTIONS_H

/*
 * The plugin's settings: one table, set by environment and command line, the latter over the
 * former. Ownership: the struct is the caller's, and borrows nothing. Threading: none.
 */

#include "util/log.h"
#include "util/setting.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>

#define PLUGIN_RESOURCE_LEN    64
#define PLUGIN_KIND_LEN        128
#define PLUGIN_ENVIRONMENT_LEN 2048
#define PLUGIN_TEXT_LEN        512

/* In each container. */
#define PLUGIN_CONTAINER_LIBRARY "/usr/lib/nvshare/libnvshare.so"
#define PLUGIN_CONTAINER_SOCK    "/run/nvshare"

/* How a container gets the device files and the driver's libraries. */
enum plugin_inject {
	PLUGIN_INJECT_VISIBLE, /* NVIDIA_VISIBLE_DEVICES, by NVIDIA's container runtime */
	PLUGIN_INJECT_CDI,     /* a CDI device, by any runtime */
	PLUGIN_INJECT_FILES,   /* the device files alone; libraries are in the image */
	PLUGIN_INJECT_NONE,    /* others care for it */
	PLUGIN_INJECT_COUNT_
};

struct plugin_options {
	char resource[PLUGIN_RESOURCE_LEN];
	char kubelet_dir[PATH_MAX];
	char sock_dir[PATH_MAX];      /* of the scheduler, as the plugin sees it */
	char host_sock_dir[PATH_MAX]; /* the same on the host; "": sock_dir */
	char library[PATH_MAX];       /* on the host */
	char host_root[PATH_MAX];     /* where the plugin sees the host's files */
	char cdi_kind[PLUGIN_KIND_LEN];
	char environment[PLUGIN_ENVIRONMENT_LEN]; /* "A=1,B=2"; "": nothing */
	char feature_file[PATH_MAX];              /* "": none */
	uint32_t n_replicas;
	enum plugin_inject inject;
	uint64_t poll_ns;
	uint64_t grace_ns;
	enum log_level log_level;
};

extern const struct setting plugin_options_table[];
extern const size_t plugin_options_table_len;

enum {
	PLUGIN_OPTIONS_E_SUCCESS_,
	PLUGIN_OPTIONS_E_BAD, /* the text names what is wrong, and what is allowed */
	PLUGIN_OPTIONS_E_HELP,
	PLUGIN_OPTIONS_E_VERSION,
};

void plugin_options_default(struct plugin_options *ret);

/*
 * args: without the program's name, and a NULL ends them. get_env: getenv, or a test's. 0 or
 * PLUGIN_OPTIONS_E_*; ret_text only with E_BAD.
 */
int plugin_options_parse(char *const *args, char *(*get_env)(const char *name),
			 struct plugin_options *ret, char ret_text[PLUGIN_TEXT_LEN]);

void plugin_options_print_help(FILE *out);

/* The folder of the socket on the host. */
const char *plugin_options_host_sock(const struct plugin_options *options);

#endif
