/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/usage.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define TEXT_COLUMN 22

/*
 * form: words, as "set mode auto|serial CLIENT". A choice that begins with a capital or a digit
 * stands for what people fill in. An option has two names, "-T, --set-tq".
 */
static const struct usage {
	const char *form;
	const char *text; /* lines; NULL: the next row's text holds for this one, too */
} rows[] = {
	{"status", "GPUs, clients that run, clients that wait and why, and\n"
		   "whose memory is where"},
	{"status --json", "the same for programs"},
	{"top", "the same as a live picture, with keys that sort, filter\n"
		"and change clients"},
	{"top -d SECONDS", "a new status each SECONDS, not each second"},
	{"config", "every setting of the scheduler, and where it comes from"},
	{"config --json", "the same for programs"},
	{"reload", "the scheduler reads its files again; changes by set end"},
	{"trace", "what happened to clients of late, as JSON for\n"
		  "ui.perfetto.dev and chrome://tracing"},
	{"trace -o FILE", "the same into a file"},
	{"trace --seconds SECONDS", "only so long ago, with or without -o"},
	{"doctor", "looks for what keeps nvshare from working, and what to do"},
	{"doctor --pid PID", "the same, and whether that program has the library"},
	{"doctor --json", "the same for programs"},
	{"run -- COMMAND...", "waits until a GPU has room, and runs COMMAND here, with\n"
			      "the library; its exit status is that of COMMAND"},
	{"run --memory SIZE -- COMMAND...",
	 "GPU memory that it needs; else an estimate, by these:"},
	{"run --model NAME -- COMMAND...", "the model that it works with; its GPU is preferred"},
	{"run --type TYPE -- COMMAND...", "the type of its work"},
	{"run --units N -- COMMAND...", "how much work: atoms, images, tokens"},
	{"run --whole -- COMMAND...", "it waits for room, and does not begin in turns"},
	{"run --gpu GPU -- COMMAND...", "this GPU, by index or UUID; or several, with commas"},
	{"run --apart WORD -- COMMAND...", "no GPU together with another job of that WORD"},
	{"run --priority low|normal|high|critical -- COMMAND...", NULL},
	{"run --time-limit TIME -- COMMAND...",
	 "as 90s, 15m, 2h, 3d or none; waits for turns do not count"},
	{"run --retries N -- COMMAND...", "when it fails it waits again, N times"},
	{"run --name TEXT -- COMMAND...", "its name in the queue"},
	{"run --gang NAME -- COMMAND...",
	 "runs on all GPUs together with others of that NAME, or not"},
	{"run --gang-size N -- COMMAND...",
	 "with --gang: N jobs of the gang start together, or none"},
	{"run --no-wait -- COMMAND...", "fails if it cannot start at once"},
	{"run --follow -- COMMAND...", "prints each change of its place in the queue"},
	{"queue", "jobs that have a GPU, and the first that wait"},
	{"queue --all", "all that wait"},
	{"queue --ended", "also the last jobs that have ended"},
	{"queue --json", "the same for programs; with --all and --ended, too"},
	{"queue position JOB", "the place of one job, and why it waits"},
	{"cancel JOB", "JOB leaves the queue, or is told to end"},
	{"wait JOB", "until JOB has ended, with the exit status of its command"},
	{"place --dry-run", "which GPU a job would get, and each GPU's score; takes the\n"
			    "options of run that describe a job, and --json"},
	{"events", "the last errors of GPUs and clients"},
	{"events -f", "the same, and those that come"},
	{"events --json", "the same for programs, one object a line; also with -f"},
	{"set SETTING VALUE", "any setting that config shows, but for those that need a\n"
			      "restart; some have short names:"},
	{"set --save SETTING VALUE", "the same, and it stays after reload and restart"},
	{"set mode auto|serial|concurrent",
	 "auto: side by side when all fit, else in turns;\n"
	 "serial: one at a time; concurrent: turns of tq seconds"},
	{"set policy priority|fair|credit|deadline",
	 "the order of turns, where not all clients fit"},
	{"set tq SECONDS", "length of a turn in mode concurrent"},
	{"set switch-time auto|SECONDS", "length of a turn in the other modes"},
	{"set reserve PERCENT", "part of each GPU's memory that no client gets"},
	{"set max-runtime SECONDS", "longest run while others wait\n"
				    "(SECONDS may have a fraction, as 0.5)"},
	{"set priority low|normal|high|critical CLIENT", NULL},
	{"set weight 1..10000 CLIENT", NULL},
	{"set slo off|MILLISECONDS CLIENT", NULL},
	{"set compute-limit off|PERCENT CLIENT", NULL},
	{"set pause on|off CLIENT", "CLIENT is a program's ID in the status, or pid:PID; or\n"
				    "gang:GANG, for all members. A gang pauses with a member"},
	{"-T, --set-tq SECONDS", "the same as set tq"},
	{"-S, --anti-thrash on|off", "off: each client that fits runs, nobody takes turns"},
	{"-h, --help", "this text"},
	{"-V, --version", "the version\n"
			  "Options apply in order; if one is wrong, none applies."},
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static void usage_print_text(const char *text, size_t column, FILE *out)
{
	while (*text) {
		size_t len = strcspn(text, "\n");

		(void)fprintf(out, "%*s%.*s\n", (int)(TEXT_COLUMN - column), "", (int)len, text);
		text += len + (text[len] == '\n');
		column = 0;
	}
}

void usage_print(FILE *out)
{
	for (size_t i = 0; i < N_ROWS; i++) {
		size_t column = 2 + strlen(rows[i].form);
		bool is_beside = rows[i].text && column < TEXT_COLUMN;

		(void)fprintf(out, "  %s%s", rows[i].form, is_beside ? "" : "\n");
		if (rows[i].text)
			usage_print_text(rows[i].text, is_beside ? column : 0, out);
	}
}

/* ---- completion ------------------------------------------------------------- */

/* Calls of one word's choices: "auto|SECONDS". Returns the length of the first one. */
static size_t choice_len(const char *choice)
{
	return strcspn(choice, "| ");
}

static bool choice_is_word(const char *choice)
{
	return islower((unsigned char)*choice) || *choice == '-';
}

static bool word_takes(const char *word, const char *arg)
{
	for (;;) {
		size_t len = choice_len(word);

		if (!choice_is_word(word) || (strlen(arg) == len && !strncmp(word, arg, len)))
			return true;
		if (word[len] != '|')
			return false;
		word += len + 1;
	}
}

static void word_print(const char *word, FILE *out)
{
	for (;;) {
		size_t len = choice_len(word);

		if (choice_is_word(word))
			(void)fprintf(out, "%.*s\n", (int)len, word);
		if (word[len] != '|')
			return;
		word += len + 1;
	}
}

/* The word behind word; NULL: there is none. */
static const char *word_next(const char *word)
{
	word += strcspn(word, " ");
	return *word ? word + 1 : NULL;
}

/* The word of an option that completion offers: its long name. */
static const char *usage_first(const struct usage *usage)
{
	return usage->form[0] == '-' ? usage->form + strlen("-x, ") : usage->form;
}

/* The word of usage that follows the args; NULL: it has none, or does not begin like them. */
static const char *usage_word_after(const struct usage *usage, char *const *args)
{
	const char *word = usage_first(usage);

	if (*args && word != usage->form && !strncmp(usage->form, *args, 2) && !(*args)[2]) {
		word = word_next(word); /* the short name */
		args++;
	}
	for (; *args && word; args++)
		word = word_takes(word, *args) ? word_next(word) : NULL;
	return word;
}

/* Two rows with the same beginning offer its next word once. */
static bool usage_is_offered(size_t row, const char *word, char *const *args)
{
	for (size_t i = 0; i < row; i++) {
		const char *other = usage_word_after(&rows[i], args);
		size_t len = strcspn(word, " ");

		if (other && strcspn(other, " ") == len && !strncmp(other, word, len))
			return true;
	}
	return false;
}

void usage_complete(char *const *args, FILE *out)
{
	for (size_t i = 0; i < N_ROWS; i++) {
		const char *word = usage_word_after(&rows[i], args);

		if (word && !usage_is_offered(i, word, args))
			word_print(word, out);
	}
}
