/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a plugin that works on the GPU by itself, in a way that symbol interposition does not
 * follow. Both keep memory and work on it, in turn, and each checks its own.
 */
#include "lib/app.h"
#include "lib/buffer.h"
#include "plugin/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static const char help[] =
	"usage: plugged [OPTION]... --plugin FILE --until FILE\n"
	"Works, and lets the plugin work, until FILE exists.\n"
	"  --by HOW       plain, deep (RTLD_DEEPBIND), space (dlmopen) (plain)\n"
	"                 hidden: deep, by the C library's own dlopen()\n"
	"  --lazy         functions are bound at their first call\n"
	"  --driver FILE  what a plugin opens that finds the driver (libcuda.so.1)\n"
	"  --size SIZE    of the program's memory, and of the plugin's (75MiB)\n"
	"  --alone        the program itself uses no GPU\n" APP_EXIT_HELP;

static struct {
	const char *plugin, *driver, *until, *by;
	uint64_t size;
	bool is_lazy, is_alone;
} opt = {.driver = "libcuda.so.1", .by = "plain", .size = 75 << 20};

static struct {
	plugin_begin_fn *begin;
	plugin_see_fn *see;
	plugin_alloc_fn *alloc;
	plugin_fill_fn *fill;
	plugin_work_fn *work;
	plugin_name_fn *name;
} plugin;

static void read_options(int argc, char **argv)
{
	for (int a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--plugin"))
			opt.plugin = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--by"))
			opt.by = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--driver"))
			opt.driver = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--until"))
			opt.until = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--size"))
			opt.size = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--lazy"))
			opt.is_lazy = true;
		else if (app_is(argv[a], "--alone"))
			opt.is_alone = true;
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	if (!opt.plugin || !opt.until)
		app_usage(help, APP_EXIT_USAGE);
}

static void *find(void *lib, const char *name)
{
	void *fn = dlsym(lib, name);

	if (!fn)
		app_exit(APP_EXIT_USAGE, "the plugin has no %s: %s", name, dlerror());
	return fn;
}

/* As a program does that keeps pointers into the C library. */
static void *open_hidden(int mode)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY);
	void *(*open)(const char *, int) =
		libc ? (void *(*)(const char *, int))dlsym(libc, "dlopen") : NULL;

	return open ? open(opt.plugin, mode | RTLD_DEEPBIND) : NULL;
}

static void open_plugin(void)
{
	int mode = opt.is_lazy ? RTLD_LAZY : RTLD_NOW;
	void *lib;

	if (app_is(opt.by, "space"))
		lib = dlmopen(LM_ID_NEWLM, opt.plugin, mode);
	else if (app_is(opt.by, "hidden"))
		lib = open_hidden(mode);
	else
		lib = dlopen(opt.plugin, mode | (app_is(opt.by, "deep") ? RTLD_DEEPBIND : 0));
	if (!lib)
		app_exit(APP_EXIT_USAGE, "%s", dlerror());
	plugin.begin = (plugin_begin_fn *)find(lib, "plugin_begin");
	plugin.see = (plugin_see_fn *)find(lib, "plugin_see");
	plugin.alloc = (plugin_alloc_fn *)find(lib, "plugin_alloc");
	plugin.fill = (plugin_fill_fn *)find(lib, "plugin_fill");
	plugin.work = (plugin_work_fn *)find(lib, "plugin_work");
	plugin.name = (plugin_name_fn *)find(lib, "plugin_name");
}

static void check(int r, const char *what)
{
	if (r == PLUGIN_E_WRONG)
		app_exit(APP_EXIT_WRONG, "%s: contents are wrong", what);
	if (r == PLUGIN_E_NO_DRIVER)
		app_exit(APP_EXIT_SKIPPED, "%s: no driver", what);
	app_check((CUresult)r, what);
}

/* Prints the plugin's view of the card, before it has memory and afterwards. */
static unsigned long long begin_plugin(void)
{
	size_t before, after, total;
	unsigned long long ptr;
	char name[64];

	check(plugin.begin(opt.driver), "plugin_begin");
	check(plugin.see(&before, &total), "plugin_see");
	check(plugin.alloc(&ptr, opt.size), "plugin_alloc");
	check(plugin.see(&after, &total), "plugin_see");
	check(plugin.name(name, sizeof(name)), "plugin_name");
	check(plugin.fill(ptr, opt.size, 0), "plugin_fill");
	printf("plugin total=%zu free=%zu then=%zu\n", total, before, after);
	(void)fflush(stdout);
	return ptr;
}

int main(int argc, char **argv)
{
	struct buffer buffer = {.kind = BUFFER_PLAIN, .seed = 1};
	unsigned long long ptr;
	struct app app;
	uint64_t first;
	int round = 0;

	app_name = "plugged";
	read_options(argc, argv);
	if (!opt.is_alone) {
		app_load(0);
		app_init(&app, 0);
		buffer_alloc(&buffer, &app, opt.size, NULL);
		buffer_fill(&buffer, &app, NULL);
	}
	open_plugin();
	ptr = begin_plugin();
	for (; round < 3 || access(opt.until, F_OK); round++) {
		check(plugin.work(ptr, opt.size, round % 256, (round + 1) % 256), "plugin_work");
		if (opt.is_alone)
			continue;
		buffer_submit(&buffer, &app, 1, NULL);
		buffer_count(&buffer, 1);
		APP_CALL(cuCtxSynchronize());
	}
	if (!opt.is_alone && buffer_check_all(&buffer, &first))
		app_exit(APP_EXIT_WRONG, "contents are wrong, first at word %llu",
			 (unsigned long long)first);
	printf("plugged verified rounds=%d\n", round);
	return APP_EXIT_VERIFIED;
}
