/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The SPANK plugin. In srun, sbatch and salloc it checks the user's options, and lets variables
 * carry them to the steps of a job. In the task, just before the program, it takes a place in
 * the node's queue and sets the program's environment.
 *
 * The process of srun, sbatch or salloc never gets LD_PRELOAD: it would hand that on to commands on
 * the submitting machine.
 */

#include "slurm/plug_arguments.h"
#include "slurm/submit_options.h"
#include "slurm/task_environment.h"
#include "slurm/task_place.h"

#include "ipc/names.h"
#include "util/parse.h"

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma GCC visibility push(default)
SPANK_PLUGIN(nvshare, 1)
#pragma GCC visibility pop

#define EXPORT __attribute__((visibility("default")))

#define LINE_LEN        512
#define ENV_LEN         8192
#define EXIT_NO_PLACE   125 /* as nvsharectl run */
#define NAME_PREFIX     "slurm-"
#define PLACED_VARIABLE "NVSHARE_SLURM_GPU"

/* Slurm gives option callbacks no context. */
static struct {
	struct plug_arguments arguments;
	struct submit_options options;
	char step_visible[NVSHARE_JOB_GPUS_LEN];
} plugin;

/* ---- the submitting side ---------------------------------------------------------- */

static int plugin_on_option(int option, const char *value, int is_remote)
{
	const struct setting *setting = &submit_options_table[option].setting;
	char line[LINE_LEN];

	if (submit_options_set(&plugin.options, (enum submit_option)option, value)) {
		slurm_error("nvshare: %s", submit_options_refusal((enum submit_option)option, value,
								  line, sizeof(line)));
		return ESPANK_BAD_ARG;
	}
	/* Steps within the job get the same. */
	if (!is_remote) {
		(void)setenv(submit_options_table[SUBMIT_OPTION_NVSHARE].setting.variable, "1", 1);
		if (option != SUBMIT_OPTION_NVSHARE)
			(void)setenv(setting->variable, value, 1);
	}
	return ESPANK_SUCCESS;
}

/* --nvshare has no value on the command line, but SLURM_NVSHARE has one. */
static int plugin_on_nvshare(int option, const char *value, int is_remote)
{
	char line[LINE_LEN];
	bool is_on;

	if (!is_remote && value && *value && parse_bool(value, &is_on)) {
		slurm_error("nvshare: %s", submit_options_refusal(SUBMIT_OPTION_NVSHARE, value,
								  line, sizeof(line)));
		return ESPANK_BAD_ARG;
	}
	return plugin_on_option(option, "1", is_remote);
}

/*
 * Hands our variables to Slurm as options, so that Slurm checks them before the command line, and
 * ends at a wrong one whatever plugstack.conf says. SLURM_NVSHARE=0 turns all options off that the
 * environment has, also those that Slurm carries into a job in variables of its own.
 */
static void plugin_take_variables(void)
{
	const char *on = getenv(submit_options_table[SUBMIT_OPTION_NVSHARE].setting.variable);
	char name[LINE_LEN];
	bool is_on = true;

	if (on && *on && parse_bool(on, &is_on))
		is_on = true; /* Slurm is to refuse it */
	for (unsigned int i = 0; i < SUBMIT_OPTION_COUNT_; i++) {
		const char *value = getenv(submit_options_table[i].setting.variable);

		(void)submit_options_variable(i, name, sizeof(name));
		if (!is_on)
			(void)unsetenv(name);
		else if (value && *value)
			(void)setenv(name, value, 1);
	}
}

static int plugin_register_options(spank_t spank)
{
	int r = ESPANK_SUCCESS;

	for (unsigned int i = 0; i < SUBMIT_OPTION_COUNT_ && r == ESPANK_SUCCESS; i++) {
		const struct submit_option_row *row = &submit_options_table[i];
		char usage[LINE_LEN], arg[LINE_LEN], name[LINE_LEN];
		/* Slurm copies the texts. */
		struct spank_option option = {
			.name = name,
			.arginfo = row->arg ? arg : NULL,
			.usage = usage,
			.has_arg = row->arg != NULL,
			.val = (int)i,
			.cb = i == SUBMIT_OPTION_NVSHARE ? plugin_on_nvshare : plugin_on_option,
		};

		(void)snprintf(name, sizeof(name), "%s", row->setting.key);
		(void)snprintf(usage, sizeof(usage), "%s", row->setting.help);
		(void)snprintf(arg, sizeof(arg), "%s", row->arg ? row->arg : "");
		r = (int)spank_option_register(spank, &option);
	}
	return r;
}

EXPORT int slurm_spank_init(spank_t spank, int n_words, char *words[])
{
	spank_context_t context = spank_context();
	char reason[LINE_LEN + PATH_MAX];

	plug_arguments_init(&plugin.arguments, NVSHARE_LIBDIR "/libnvshare.so");
	submit_options_init(&plugin.options);
	if (plug_arguments_parse(&plugin.arguments, n_words, (const char *const *)words, reason,
				 sizeof(reason))) {
		slurm_error("nvshare: plugstack.conf: %s", reason);
		return -1;
	}
	if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR)
		plugin_take_variables();
	else if (context != S_CTX_REMOTE)
		return ESPANK_SUCCESS;
	return plugin_register_options(spank);
}

/* ---- the task ----------------------------------------------------------------------- */

struct task {
	spank_t spank;
	char node[NVSHARE_NAME_LEN];
	char name[NVSHARE_NAME_LEN];
	char step[NVSHARE_NAME_LEN];  /* of all tasks of its step */
	struct nvshare_gang together; /* it takes its place with these; size 0: alone */
	bool is_script; /* a batch script or an interactive shell: its steps are the work */
};

/* Returns buf, or NULL where the variable is not set. A task with a longer value fails. */
static const char *task_getenv(const struct task *task, const char *name, char *buf, size_t size)
{
	spank_err_t r = spank_getenv(task->spank, name, buf, (int)size);

	if (r == ESPANK_NOSPACE) {
		slurm_error("nvshare: the value of %s is too long", name);
		_exit(EXIT_NO_PLACE);
	}
	return r == ESPANK_SUCCESS ? buf : NULL;
}

static void task_setenv(const struct task *task, const char *name, const char *value)
{
	if (spank_setenv(task->spank, name, value, 1) != ESPANK_SUCCESS)
		slurm_error("nvshare: cannot set %s", name);
}

/*
 * The plugin can not do its part. Slurm lets a task go on after a failed plugin, unless a word in
 * plugstack.conf says otherwise; here our own argument decides.
 */
static void task_trouble(const char *reason)
{
	if (plugin.arguments.scheduler == PLUG_SCHEDULER_REQUIRED) {
		slurm_error("nvshare: %s; the task fails (scheduler=required in plugstack.conf)",
			    reason);
		_exit(EXIT_NO_PLACE);
	}
	slurm_error("nvshare: %s; the task runs without a place on a GPU", reason);
}

static void task_identify(struct task *task)
{
	spank_t spank = task->spank;
	uint32_t job = 0, step = 0, number = 0, array = 0, array_task = NO_VAL;
	char job_text[32], node[HOST_NAME_MAX + 1];

	(void)spank_get_item(spank, S_JOB_ID, &job);
	(void)spank_get_item(spank, S_JOB_STEPID, &step);
	(void)spank_get_item(spank, S_TASK_GLOBAL_ID, &number);
	(void)spank_get_item(spank, S_JOB_ARRAY_ID, &array);
	(void)spank_get_item(spank, S_JOB_ARRAY_TASK_ID, &array_task);
	if (array_task != NO_VAL)
		(void)snprintf(job_text, sizeof(job_text), "%u_%u", array, array_task);
	else
		(void)snprintf(job_text, sizeof(job_text), "%u", job);
	task->is_script = step == SLURM_BATCH_SCRIPT || step == SLURM_INTERACTIVE_STEP;
	if (task->is_script)
		(void)snprintf(task->name, sizeof(task->name), NAME_PREFIX "%s.%s", job_text,
			       step == SLURM_BATCH_SCRIPT ? "batch" : "interactive");
	else
		(void)snprintf(task->name, sizeof(task->name), NAME_PREFIX "%s.%u.%u", job_text,
			       step, number);
	(void)snprintf(task->step, sizeof(task->step), NAME_PREFIX "%s.%u", job_text, step);
	if (!task_getenv(task, "SLURMD_NODENAME", node, sizeof(node)))
		(void)snprintf(node, sizeof(node), "localhost");
	(void)snprintf(task->node, sizeof(task->node), "%.*s", NVSHARE_NAME_LEN - 1, node);
}

/* library: "" takes it out, where a batch script has handed it on. */
static void task_set_preload(const struct task *task, const char *library)
{
	char old[ENV_LEN], value[ENV_LEN + PATH_MAX];

	(void)task_environment_preload(task_getenv(task, "LD_PRELOAD", old, sizeof(old)), library,
				       value, sizeof(value));
	if (*value)
		task_setenv(task, "LD_PRELOAD", value);
	else
		(void)spank_unsetenv(task->spank, "LD_PRELOAD");
}

/* The user's wishes. A name of the user's own stays. */
static void task_set_claim(const struct task *task)
{
	const struct submit_options *options = &plugin.options;
	char old[ENV_LEN], value[16];

	if (!task_getenv(task, "NVSHARE_NAME", old, sizeof(old)) ||
	    !strncmp(old, NAME_PREFIX, sizeof(NAME_PREFIX) - 1))
		task_setenv(task, "NVSHARE_NAME", task->name);
	/* The class of a job is that of its programs, unless they are told another one. */
	if (options->claimed_class < NVSHARE_PRIORITY_COUNT)
		task_setenv(task, "NVSHARE_PRIORITY", names_priority[options->claimed_class]);
	else if (options->priority < NVSHARE_PRIORITY_COUNT &&
		 !task_getenv(task, "NVSHARE_PRIORITY", old, sizeof(old)))
		task_setenv(task, "NVSHARE_PRIORITY", names_priority[options->priority]);
	if (options->weight) {
		(void)snprintf(value, sizeof(value), "%u", options->weight);
		task_setenv(task, "NVSHARE_WEIGHT", value);
	}
}

/*
 * Tasks that need each other run together, or they would wait for those that have no turn. For the
 * same reason they take their places together. In the queue of the node the tasks of one step are
 * meant, whatever the gang of their programs is called.
 */
static void task_set_gang(struct task *task)
{
	char inherited[ENV_LEN], automatic[ENV_LEN];
	struct task_gang_facts facts = {
		.option = plugin.options.gang,
		.inherited = task_getenv(task, "NVSHARE_GANG", inherited, sizeof(inherited)),
		.automatic = task_getenv(task, "NVSHARE_GANG_AUTO", automatic, sizeof(automatic)),
		.step = task->step,
		.prefix = NAME_PREFIX,
	};
	const char *gang;

	if (!task->is_script)
		(void)spank_get_item(task->spank, S_JOB_LOCAL_TASK_COUNT, &facts.n_tasks);
	gang = task_environment_gang(&facts);
	if (gang)
		task_setenv(task, "NVSHARE_GANG", gang);
	else
		(void)spank_unsetenv(task->spank, "NVSHARE_GANG");
	if (!task_environment_is_together(&facts))
		return;
	task->together.size = facts.n_tasks;
	(void)snprintf(task->together.name, sizeof(task->together.name), "%s@%s", task->step,
		       task->node);
}

static void task_say(const char *line, void *arg)
{
	const struct task *task = arg;

	slurm_spank_log("nvshare: %s on %s: %s", task->name, task->node, line);
}

static void task_take_place(struct task *task, const char *dir)
{
	char visible[ENV_LEN], step_gpus[ENV_LEN], placed[ENV_LEN], gpu[NVSHARE_JOB_GPUS_LEN] = "";
	char reason[LINE_LEN], number[16];
	struct task_place place;
	struct task_gpus_facts facts = {
		.task_visible = task_getenv(task, "CUDA_VISIBLE_DEVICES", visible, sizeof(visible)),
		.step_visible = plugin.step_visible,
		.step_gpus = task_getenv(task, "SLURM_STEP_GPUS", step_gpus, sizeof(step_gpus)),
		.placed = task_getenv(task, PLACED_VARIABLE, placed, sizeof(placed)),
	};
	enum task_gpus chosen = task_environment_gpus(&facts, gpu, sizeof(gpu));
	struct task_place_request request = {
		.options = &plugin.options,
		.dir = *dir ? dir : NULL,
		.name = task->name,
		.gpu = gpu,
		.gang = task->together,
		.say = task_say,
		.arg = task,
	};
	int r;

	if (chosen == TASK_GPUS_SEVERAL) {
		task_say("CUDA_VISIBLE_DEVICES names several GPUs, so the task takes no place in "
			 "the queue",
			 task);
		return;
	}
	r = task_place_wait(&request, &place, reason, sizeof(reason));
	if (r == TASK_PLACE_E_REFUSED) {
		slurm_error("nvshare: %s on %s: %s; the task fails%s", task->name, task->node,
			    reason,
			    task->together.size ? " (the tasks of a step start together;"
						  " --nvshare-gang=off changes that)"
						: "");
		_exit(EXIT_NO_PLACE);
	}
	if (r) {
		task_trouble(reason);
		return;
	}
	(void)snprintf(number, sizeof(number), "%u", place.job);
	task_setenv(task, "NVSHARE_JOB", number);
	if (plugin.options.priority < NVSHARE_PRIORITY_COUNT)
		plugin.options.priority = place.priority;
	if (chosen == TASK_GPUS_ANY) {
		task_setenv(task, "CUDA_VISIBLE_DEVICES", place.uuid);
		task_setenv(task, PLACED_VARIABLE, place.uuid);
	}
}

/* In slurmstepd, before GPUs are bound to single tasks. */
EXPORT int slurm_spank_user_init(spank_t spank, int n_words, char *words[])
{
	(void)n_words;
	(void)words;
	if (plugin.options.is_on && spank_getenv(spank, "CUDA_VISIBLE_DEVICES", plugin.step_visible,
						 sizeof(plugin.step_visible)) != ESPANK_SUCCESS)
		plugin.step_visible[0] = '\0';
	return ESPANK_SUCCESS;
}

/*
 * A batch script that was submitted with --export=NONE has our variables alone: Slurm carries its
 * options in variables that it does not keep then. A wrong value fails the task. SLURM_NVSHARE=0
 * takes the library out of the task.
 */
static void task_take_variables(const struct task *task)
{
	char on[ENV_LEN], value[ENV_LEN], line[ENV_LEN + LINE_LEN];
	bool is_on = true;

	if (task_getenv(task, submit_options_table[SUBMIT_OPTION_NVSHARE].setting.variable, on,
			sizeof(on)) &&
	    parse_bool(on, &is_on) == 0 && !is_on) {
		task_set_preload(task, "");
		return;
	}
	for (unsigned int i = 0; i < SUBMIT_OPTION_COUNT_; i++) {
		if (!task_getenv(task, submit_options_table[i].setting.variable, value,
				 sizeof(value)) ||
		    !*value)
			continue;
		if (submit_options_set(&plugin.options, i, value)) {
			slurm_error("nvshare: %s; the task fails",
				    submit_options_refusal(i, value, line, sizeof(line)));
			_exit(EXIT_NO_PLACE);
		}
	}
}

/* In the process that becomes the program, as the user. */
EXPORT int slurm_spank_task_init(spank_t spank, int n_words, char *words[])
{
	char dir[PATH_MAX + NVSHARE_NAME_LEN], own_dir[PATH_MAX], reason[PATH_MAX + LINE_LEN];
	struct task task = {.spank = spank};

	(void)n_words;
	(void)words;
	if (!plugin.options.is_on)
		task_take_variables(&task);
	if (!plugin.options.is_on)
		return ESPANK_SUCCESS;
	task_identify(&task);
	if (access(plugin.arguments.library, R_OK)) {
		(void)snprintf(reason, sizeof(reason), "%s has no library %s", task.node,
			       plugin.arguments.library);
		task_trouble(reason);
		return ESPANK_SUCCESS;
	}
	task_set_preload(&task, plugin.arguments.library);
	task_set_gang(&task);
	if (task_environment_expand(plugin.arguments.socket_dir, task.node, dir, sizeof(dir)))
		slurm_error("nvshare: socket_dir is too long");
	if (*dir)
		task_setenv(&task, "NVSHARE_SOCK_DIR", dir);
	else if (task_getenv(&task, "NVSHARE_SOCK_DIR", own_dir, sizeof(own_dir)))
		(void)snprintf(dir, sizeof(dir), "%s", own_dir);
	if (!task.is_script)
		task_take_place(&task, dir);
	task_set_claim(&task);
	return ESPANK_SUCCESS;
}
