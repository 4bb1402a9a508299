/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor.h"

#include "cli/cli.h"
#include "cli/fold.h"
#include "cli/json.h"
#include "cli/terminal.h"
#include "nvshare/version.h"
#include "util/parse.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDENT 24 /* of texts, behind level and name */

static const struct {
	const char *word, *colour;
} levels[] = {
	[DOCTOR_OK] = {"ok", "\033[32m"},
	[DOCTOR_WARNING] = {"warning", "\033[33m"},
	[DOCTOR_PROBLEM] = {"problem", "\033[31m"},
};

/* Prints text behind head, which is INDENT columns wide on a terminal; further lines hang. */
static void text_print(const char *head, const char *text)
{
	char *folded = NULL;
	size_t len;
	FILE *out = open_memstream(&folded, &len);
	char line[INDENT + 512];

	if (!out)
		return;
	(void)snprintf(line, sizeof(line), "%*s%s\n", INDENT, "", text);
	fold_print(out, line, terminal_width());
	if (fclose(out) == 0)
		(void)printf("%s%s", head, folded + INDENT);
	free(folded);
}

static void finding_print(const char *name, const struct doctor_finding *finding)
{
	bool has_colours = terminal_has_colours();
	char head[INDENT + 16];

	(void)snprintf(head, sizeof(head), "%s%-9s%s%-15s",
		       has_colours ? levels[finding->level].colour : "",
		       levels[finding->level].word, has_colours ? "\033[0m" : "", name);
	text_print(head, finding->found);
	if (!finding->advice[0])
		return;
	(void)snprintf(head, sizeof(head), "%*s", INDENT, "");
	text_print(head, finding->advice);
}

static void finding_print_json(const char *name, const struct doctor_finding *finding,
			       bool is_first)
{
	(void)printf("%s\n    {\"name\": \"%s\", \"level\": \"%s\", \"found\": ",
		     is_first ? "" : ",", name, levels[finding->level].word);
	json_print_string(stdout, finding->found);
	(void)fputs(", \"advice\": ", stdout);
	if (finding->advice[0])
		json_print_string(stdout, finding->advice);
	else
		(void)fputs("null", stdout);
	(void)putchar('}');
}

/* Returns the worst level. */
static enum doctor_level findings_print(const struct doctor_facts *facts, bool is_json)
{
	enum doctor_level worst = DOCTOR_OK;
	struct doctor_finding finding;
	bool is_first = true;

	(void)printf(is_json ? "{\n  \"version\": \"%s\",\n  \"findings\": [" : "nvsharectl %s\n",
		     NVSHARE_VERSION);
	for (size_t row = 0; row < doctor_rows(); row++) {
		const char *name = doctor_judge(row, facts, &finding);

		if (!name)
			continue;
		if (is_json)
			finding_print_json(name, &finding, is_first);
		else
			finding_print(name, &finding);
		is_first = false;
		if (finding.level > worst)
			worst = finding.level;
	}
	if (is_json)
		(void)printf("\n  ],\n  \"worst\": \"%s\"\n}\n", levels[worst].word);
	return worst;
}

/* Takes "--json" and "--pid PID", in any order. false: something else stands there. */
static bool take_args(char *const *args, bool *ret_json, pid_t *ret_pid)
{
	uint64_t pid;

	for (; *args; args++) {
		if (!strcmp(*args, "--json")) {
			*ret_json = true;
		} else if (!strcmp(*args, "--pid") && args[1] &&
			   parse_u64(args[1], 1, INT_MAX, &pid) == 0) {
			*ret_pid = (pid_t)pid;
			args++;
		} else {
			return false;
		}
	}
	return true;
}

int doctor_command(char *const *args)
{
	struct doctor_facts facts;
	enum doctor_level worst;
	bool is_json = false;
	pid_t pid = 0;

	if (!take_args(args, &is_json, &pid)) {
		(void)fprintf(stderr, "nvsharectl: doctor takes --json and --pid PID\n");
		return CLI_EXIT_USAGE;
	}
	doctor_facts_gather(&facts, pid);
	worst = findings_print(&facts, is_json);
	doctor_facts_deinit(&facts);
	return worst == DOCTOR_OK ? CLI_EXIT_OK : CLI_EXIT_REFUSED;
}
