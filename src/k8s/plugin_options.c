/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/plugin_options.h"

#include "nvshare/protocol.h"
#include "util/clock.h"
#include "util/text.h"

#include "k8s/devices.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

static const char *const inject_names[PLUGIN_INJECT_COUNT_] = {"visible", "cdi", "files", "none"};

/* ---- forms of values --------------------------------------------------------- */

static int options_copy(const char *value, size_t size, void *field)
{
	if (strlen(value) >= size)
		return -EINVAL;
	(void)snprintf(field, size, "%s", value);
	return 0;
}

static void options_print_text(const void *field, char *buf, size_t size)
{
	(void)snprintf(buf, size, "%s", (const char *)field);
}

static int options_parse_path(const struct setting *setting, const char *value, void *field)
{
	return *value == '/' ? options_copy(value, setting->size, field) : -EINVAL;
}

static int options_parse_path_or_none(const struct setting *setting, const char *value, void *field)
{
	if (strcmp(value, "none") != 0)
		return options_parse_path(setting, value, field);
	*(char *)field = '\0';
	return 0;
}

static bool options_is_word(const char *s, size_t len, const char *others)
{
	if (len == 0 || !isalnum((unsigned char)s[0]) || !isalnum((unsigned char)s[len - 1]))
		return false;
	for (size_t i = 0; i < len; i++) {
		if (!isalnum((unsigned char)s[i]) && !strchr(others, s[i]))
			return false;
	}
	return true;
}

/* DOMAIN/NAME, as names of resources and kinds of CDI devices are. */
static int options_parse_qualified(const struct setting *setting, const char *value, void *field)
{
	const char *slash = strchr(value, '/');

	if (!slash || !options_is_word(value, (size_t)(slash - value), ".-") ||
	    !options_is_word(slash + 1, strlen(slash + 1), "._-"))
		return -EINVAL;
	return options_copy(value, setting->size, field);
}

/* "NVSHARE_NAME=VALUE" of len bytes. The plugin itself sets the socket's folder. */
static bool options_is_variable(const char *s, size_t len)
{
	static const char prefix[] = "NVSHARE_", sock[] = "NVSHARE_SOCK_DIR=";
	const char *equals = memchr(s, '=', len);

	if (!equals || strncmp(s, prefix, sizeof(prefix) - 1) != 0 ||
	    !strncmp(s, sock, sizeof(sock) - 1))
		return false;
	for (const char *c = s; c < equals; c++) {
		if (!isupper((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '_')
			return false;
	}
	return true;
}

static int options_parse_environment(const struct setting *setting, const char *value, void *field)
{
	size_t len;

	if (!strcmp(value, "none"))
		value = "";
	for (const char *s = value; *s; s += len + (s[len] == ',')) {
		const char *equals = strchr(s, '=');
		size_t name_len = equals ? (size_t)(equals + 1 - s) : 0;

		len = strcspn(s, ",");
		if (!options_is_variable(s, len) || (s[len] && !s[len + 1]))
			return -EINVAL;
		for (const char *t = value; t < s; t += strcspn(t, ",") + 1) {
			if (!strncmp(t, s, name_len))
				return -EINVAL; /* the same name twice */
		}
	}
	return options_copy(value, setting->size, field);
}

static const struct setting_form options_directory = {
	.parse = options_parse_path,
	.print = options_print_text,
	.allowed = "/PATH of a directory",
};
static const struct setting_form options_file = {
	.parse = options_parse_path,
	.print = options_print_text,
	.allowed = "/PATH of a file",
};
static const struct setting_form options_file_or_none = {
	.parse = options_parse_path_or_none,
	.print = options_print_text,
	.allowed = "/PATH of a file, or none",
};
static const struct setting_form options_directory_or_none = {
	.parse = options_parse_path_or_none,
	.print = options_print_text,
	.allowed = "/PATH of a directory, or none",
};
static const struct setting_form options_qualified = {
	.parse = options_parse_qualified,
	.print = options_print_text,
	.allowed = "DOMAIN/NAME",
};
static const struct setting_form options_environment = {
	.parse = options_parse_environment,
	.print = options_print_text,
	.allowed = "NVSHARE_NAME=VALUE, several with commas, each name once; or none",
};

/* ---- the table --------------------------------------------------------------- */

#define AT(field, type) \
	.offset = SETTING_AT(struct plugin_options, field, type), .size = sizeof(type)
#define TEXT(field)                                                            \
	.kind = SETTING_OWN, .offset = offsetof(struct plugin_options, field), \
	.size = sizeof(((struct plugin_options *)0)->field)

const struct setting plugin_options_table[] = {
	{
		.variable = "NVSHARE_PLUGIN_RESOURCE",
		TEXT(resource),
		.form = &options_qualified,
		.help = "the name of the resource that pods ask for",
	},
	{
		.variable = "NVSHARE_PLUGIN_REPLICAS",
		.kind = SETTING_NUMBER,
		AT(n_replicas, uint32_t),
		.min = 1,
		.max = DEVICES_REPLICAS_MAX,
		.help = "containers that may have a GPU at once; each gets one device of so many",
	},
	{
		.variable = "NVSHARE_PLUGIN_INJECT",
		.kind = SETTING_ENUM,
		AT(inject, enum plugin_inject),
		.max = PLUGIN_INJECT_COUNT_,
		.names = inject_names,
		.help = "how a container gets the driver and the device files",
	},
	{
		.variable = "NVSHARE_PLUGIN_CDI_KIND",
		TEXT(cdi_kind),
		.form = &options_qualified,
		.help = "with inject=cdi: the kind of the CDI devices, whose names are UUIDs",
	},
	{
		.variable = "NVSHARE_PLUGIN_LIBRARY",
		TEXT(library),
		.form = &options_file,
		.help = "the library on the host; the file behind a link is mounted",
	},
	{
		.variable = "NVSHARE_PLUGIN_ENVIRONMENT",
		TEXT(environment),
		.form = &options_environment,
		.unset = "none",
		.help = "variables that each container gets, too",
	},
	{
		.variable = "NVSHARE_PLUGIN_POLL_SEC",
		.kind = SETTING_DECIMAL,
		AT(poll_ns, uint64_t),
		.min = CLOCK_NS_PER_SEC / 10,
		.max = 3600 * CLOCK_NS_PER_SEC,
		.help = "the scheduler is asked so often for new GPUs and loads",
	},
	{
		.variable = "NVSHARE_PLUGIN_GRACE_SEC",
		.kind = SETTING_DECIMAL,
		AT(grace_ns, uint64_t),
		.max = 86400 * CLOCK_NS_PER_SEC,
		.help = "devices stay healthy for so long without a scheduler",
	},
	{
		.variable = "NVSHARE_PLUGIN_FEATURE_FILE",
		TEXT(feature_file),
		.form = &options_file_or_none,
		.unset = "none",
		.help = "the file of node labels for Node Feature Discovery",
	},
	{
		.variable = "NVSHARE_PLUGIN_KUBELET_DIR",
		TEXT(kubelet_dir),
		.form = &options_directory,
		.help = "the folder of the kubelet's and the plugins' sockets",
	},
	{
		.variable = "NVSHARE_PLUGIN_HOST_SOCK_DIR",
		TEXT(host_sock_dir),
		.form = &options_directory_or_none,
		.unset = "the folder of NVSHARE_SOCK_DIR",
		.help = "the folder of the scheduler's socket on the host",
	},
	{
		.variable = "NVSHARE_PLUGIN_HOST_ROOT",
		TEXT(host_root),
		.form = &options_directory,
		.help = "where the plugin sees the host's files",
	},
	{
		.variable = "NVSHARE_SOCK_DIR",
		TEXT(sock_dir),
		.form = &options_directory,
		.help = "the folder of the scheduler's socket",
	},
	{
		.variable = "NVSHARE_LOG",
		.kind = SETTING_ENUM,
		AT(log_level, enum log_level),
		.max = LOG_LEVEL_COUNT_,
		.names = log_level_names,
		.help = "the least important lines that are written to standard error",
	},
};
const size_t plugin_options_table_len =
	sizeof(plugin_options_table) / sizeof(plugin_options_table[0]);

void plugin_options_default(struct plugin_options *ret)
{
	*ret = (struct plugin_options){
		.resource = "nvshare.com/gpu",
		.kubelet_dir = "/var/lib/kubelet/device-plugins",
		.sock_dir = NVSHARE_SOCK_DIR_DEFAULT,
		.library = NVSHARE_LIBDIR "/libnvshare.so",
		.host_root = "/",
		.cdi_kind = "nvidia.com/gpu",
		.n_replicas = 10,
		.poll_ns = 60 * CLOCK_NS_PER_SEC,
		.grace_ns = 30 * CLOCK_NS_PER_SEC,
		.log_level = LOG_LEVEL_INFO,
	};
}

const char *plugin_options_host_sock(const struct plugin_options *options)
{
	return options->host_sock_dir[0] ? options->host_sock_dir : options->sock_dir;
}

/* ---- sources ----------------------------------------------------------------- */

/* "plugin-replicas" of NVSHARE_PLUGIN_REPLICAS is "--replicas"; of NVSHARE_LOG it is "--log". */
static void options_flag(const struct setting *setting, char buf[SETTING_TEXT_LEN])
{
	static const char prefix[] = "NVSHARE_", plugin[] = "PLUGIN_";
	const char *s = setting->variable + sizeof(prefix) - 1;
	size_t n = 2;

	if (!strncmp(s, plugin, sizeof(plugin) - 1))
		s += sizeof(plugin) - 1;
	memcpy(buf, "--", n);
	for (; *s; s++)
		buf[n++] = (char)(*s == '_' ? '-' : tolower((unsigned char)*s));
	buf[n] = '\0';
}

static int options_take(struct plugin_options *options, const struct setting *setting,
			const char *label, const char *value, char ret_text[PLUGIN_TEXT_LEN])
{
	char allowed[SETTING_TEXT_LEN];

	if (!setting_parse(setting, value, options))
		return 0;
	setting_allowed(setting, allowed);
	(void)snprintf(ret_text, PLUGIN_TEXT_LEN, "%s is '%.80s'; allowed is %s", label, value,
		       allowed);
	return PLUGIN_OPTIONS_E_BAD;
}

static const struct setting *options_find(const char *name, size_t len)
{
	for (size_t i = 0; i < plugin_options_table_len; i++) {
		char flag[SETTING_TEXT_LEN];

		options_flag(&plugin_options_table[i], flag);
		if (strlen(flag) == len && !memcmp(flag, name, len))
			return &plugin_options_table[i];
	}
	return NULL;
}

/* "--replicas=5" or "--replicas 5" at *args, which is moved behind it. */
static int options_take_flag(struct plugin_options *options, char *const **args,
			     char ret_text[PLUGIN_TEXT_LEN])
{
	const char *arg = *(*args)++;
	const char *value = strchr(arg, '=');
	size_t len = value ? (size_t)(value - arg) : strlen(arg);
	const struct setting *setting = options_find(arg, len);
	char flag[SETTING_TEXT_LEN];

	if (!setting) {
		(void)snprintf(ret_text, PLUGIN_TEXT_LEN, "unknown option '%.80s'; see --help",
			       arg);
		return PLUGIN_OPTIONS_E_BAD;
	}
	options_flag(setting, flag);
	if (value)
		value++;
	else if (**args)
		value = *(*args)++;
	if (value)
		return options_take(options, setting, flag, value, ret_text);
	(void)snprintf(ret_text, PLUGIN_TEXT_LEN, "%s needs a value", flag);
	return PLUGIN_OPTIONS_E_BAD;
}

int plugin_options_parse(char *const *args, char *(*get_env)(const char *name),
			 struct plugin_options *ret, char ret_text[PLUGIN_TEXT_LEN])
{
	int r = 0;

	plugin_options_default(ret);
	/* Help comes first: it also works where the environment is wrong. */
	for (char *const *arg = args; *arg; arg++) {
		if (!strcmp(*arg, "--help") || !strcmp(*arg, "-h"))
			return PLUGIN_OPTIONS_E_HELP;
		if (!strcmp(*arg, "--version") || !strcmp(*arg, "-V"))
			return PLUGIN_OPTIONS_E_VERSION;
	}
	for (size_t i = 0; !r && i < plugin_options_table_len; i++) {
		const char *name = plugin_options_table[i].variable;
		const char *value = get_env(name);

		if (value && *value)
			r = options_take(ret, &plugin_options_table[i], name, value, ret_text);
	}
	while (!r && *args)
		r = options_take_flag(ret, &args, ret_text);
	if (r == PLUGIN_OPTIONS_E_BAD)
		text_sanitize(ret_text);
	return r;
}

void plugin_options_print_help(FILE *out)
{
	static struct plugin_options defaults; /* too large for a stack */

	plugin_options_default(&defaults);
	(void)fprintf(out,
		      "Usage: nvshare-device-plugin [OPTION]...\n"
		      "Offers the GPUs of nvshare-scheduler to the kubelet of this node.\n\n"
		      "  -h, --help      this text\n"
		      "  -V, --version   the version\n\n"
		      "Every other option is also an environment variable; the option wins.\n");
	for (size_t i = 0; i < plugin_options_table_len; i++) {
		const struct setting *setting = &plugin_options_table[i];
		char value[SETTING_TEXT_LEN], allowed[SETTING_TEXT_LEN], flag[SETTING_TEXT_LEN];

		options_flag(setting, flag);
		setting_print_default(setting, &defaults, value);
		setting_allowed(setting, allowed);
		(void)fprintf(out, "\n  %s=VALUE, %s\n      %s (%s); %s\n", flag, setting->variable,
			      setting->help, value, allowed);
	}
}
