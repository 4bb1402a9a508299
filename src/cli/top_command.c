/* SPDX-License-Identifier: Apache-2.0 */
/* nvsharectl top: the terminal of top.h, and its connection to the scheduler. */

#include "cli/cli.h"
#include "cli/status.h"
#include "cli/top.h"

#include "util/clock.h"
#include "util/parse.h"

/* Functions, not macros: those have names that others have, too. */
#define NCURSES_NOMACROS
#include <curses.h>
#include <locale.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINES_MAX  200
#define USERS_KEPT 64
#define ESCAPE_MS  50 /* a lone Esc is one if no more of a key's sequence comes so soon */

#define INTERVAL_MIN_NS (CLOCK_NS_PER_SEC / 10)
#define INTERVAL_MAX_NS (3600 * CLOCK_NS_PER_SEC)

/*
 * One connection is kept, so that a request reaches the scheduler whose status is shown: another
 * one would give the IDs to other clients.
 */
struct session {
	struct top top;
	int fd;          /* -1: not connected */
	bool is_asked;   /* the answer to GET_STATUS is not complete */
	bool is_changed; /* the picture is not that of top */
	uint64_t interval_ns;
	uint64_t next_ns;          /* when to ask again */
	uint64_t limit_ns;         /* when an answer that has not come is given up */
	struct status statuses[3]; /* the one that comes in, the one that is shown, and before it */
	struct status *coming;
	struct top_line lines[LINES_MAX];
	FILE *errors;
	char error[NVSHARE_TEXT_LEN];
};

/* Asking for each user's name at each line could ask a server on the network each time. */
static const char *user_name(uint32_t uid)
{
	static struct {
		bool is_known;
		uint32_t uid;
		char name[TOP_INPUT_LEN];
	} kept[USERS_KEPT];
	size_t at = uid % USERS_KEPT;
	const struct passwd *user;

	if (kept[at].is_known && kept[at].uid == uid)
		return kept[at].name;
	user = getpwuid(uid);
	kept[at].is_known = true;
	kept[at].uid = uid;
	if (user)
		(void)snprintf(kept[at].name, sizeof(kept[at].name), "%s", user->pw_name);
	else
		(void)snprintf(kept[at].name, sizeof(kept[at].name), "%u", uid);
	return kept[at].name;
}

/* ---- the scheduler ------------------------------------------------------------ */

/* The first line of the error that was reported last, without the command's name. */
static void session_take_error(struct session *session, char ret_text[NVSHARE_TEXT_LEN])
{
	static const char ours[] = "nvsharectl: ";
	const char *text = session->error;

	(void)fflush(session->errors);
	if (!strncmp(text, ours, strlen(ours)))
		text += strlen(ours);
	(void)snprintf(ret_text, NVSHARE_TEXT_LEN, "%.*s", (int)strcspn(text, "\n"), text);
	rewind(session->errors);
	session->error[0] = '\0';
}

static void session_close(struct session *session)
{
	if (session->fd >= 0)
		(void)close(session->fd);
	session->fd = -1;
	session->is_asked = false;
	session->is_changed = true;
	session_take_error(session, session->top.problem);
}

static void status_reset(struct status *status)
{
	status_deinit(status);
	*status = (struct status){.gpus = NULL};
}

static void session_ask(struct session *session)
{
	const struct nvshare_get_status body = {
		.flags = NVSHARE_GET_STATUS_STATES | NVSHARE_GET_STATUS_GANGS |
			 NVSHARE_GET_STATUS_WAITS,
	};

	session->next_ns = clock_now_ns() + session->interval_ns;
	status_reset(session->coming);
	if (session->fd < 0 && request_open(&session->fd)) {
		session_close(session);
		return;
	}
	if (request_send(session->fd, NVSHARE_MSG_GET_STATUS, &body)) {
		session_close(session);
		return;
	}
	session->is_asked = true;
	session->limit_ns = clock_now_ns() + 10 * CLOCK_NS_PER_SEC;
}

/* The status that is no longer needed takes the next answer. */
static void session_show(struct session *session)
{
	top_take(&session->top, session->coming);
	session->is_asked = false;
	session->is_changed = true;
	for (size_t i = 0; i < sizeof(session->statuses) / sizeof(*session->statuses); i++) {
		if (&session->statuses[i] != session->top.status &&
		    &session->statuses[i] != session->top.before)
			session->coming = &session->statuses[i];
	}
}

/* A part of an answer has come, or the connection has ended. */
static void session_hear(struct session *session)
{
	struct pollfd pfd = {.fd = session->fd, .events = POLLIN};
	bool is_last = false;
	int r;

	do {
		r = status_receive(session->fd, session->coming, &is_last);
	} while (!r && !is_last && poll(&pfd, 1, 0) > 0);
	if (r)
		session_close(session);
	else if (is_last)
		session_show(session);
}

/* Waits for the rest of a status before it, since answers come in order. */
static void session_set(struct session *session, const struct nvshare_set *set)
{
	struct nvshare_result_msg result;

	while (session->is_asked)
		session_hear(session);
	if (session->fd < 0) {
		(void)snprintf(session->top.answer, sizeof(session->top.answer),
			       "no scheduler answers");
		return;
	}
	if (request_set(session->fd, NVSHARE_MSG_SET, set, &result)) {
		session_close(session);
		return;
	}
	(void)snprintf(session->top.answer, sizeof(session->top.answer), "%s", result.text);
	session_ask(session);
}

/* ---- the terminal ------------------------------------------------------------- */

static attr_t style_attributes[TOP_STYLE_COUNT] = {
	[TOP_STYLE_TITLE] = A_BOLD,
	[TOP_STYLE_HEAD] = A_REVERSE,
	[TOP_STYLE_BAD] = A_BOLD,
};

static void terminal_colours(void)
{
	static const struct {
		enum top_style style;
		short colour;
	} colours[] = {{TOP_STYLE_RUNNING, COLOR_GREEN},
		       {TOP_STYLE_WAITING, COLOR_YELLOW},
		       {TOP_STYLE_BAD, COLOR_RED}};
	const char *no_color = getenv("NO_COLOR");

	if ((no_color && *no_color) || !has_colors() || start_color() == ERR ||
	    use_default_colors() == ERR)
		return;
	for (size_t i = 0; i < sizeof(colours) / sizeof(*colours); i++) {
		short pair = (short)(i + 1);

		(void)init_pair(pair, colours[i].colour, -1);
		style_attributes[colours[i].style] |= (attr_t)COLOR_PAIR(pair);
	}
}

/* Sequences that many terminals send, whatever the entry of their TERM says. */
static void terminal_keys(void)
{
	static const struct {
		const char *sequence;
		int key;
	} keys[] = {{"\033[A", KEY_UP},   {"\033[B", KEY_DOWN},   {"\033OA", KEY_UP},
		    {"\033OB", KEY_DOWN}, {"\033[H", KEY_HOME},   {"\033[F", KEY_END},
		    {"\033OH", KEY_HOME}, {"\033OF", KEY_END},    {"\033[1~", KEY_HOME},
		    {"\033[4~", KEY_END}, {"\033[5~", KEY_PPAGE}, {"\033[6~", KEY_NPAGE}};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		(void)define_key(keys[i].sequence, keys[i].key);
}

static bool terminal_begin(void)
{
	SCREEN *screen;

	(void)setlocale(LC_CTYPE, "");
	screen = newterm(NULL, stdout, stdin);
	if (!screen)
		return false;
	(void)cbreak();
	(void)noecho();
	(void)keypad(stdscr, true);
	terminal_keys();
	(void)nodelay(stdscr, true);
	(void)set_escdelay(ESCAPE_MS);
	(void)curs_set(0);
	terminal_colours();
	return true;
}

/* ncurses sends the terminal what has changed, and nothing else. */
static void terminal_draw(struct session *session)
{
	int n_lines = getmaxy(stdscr), width = getmaxx(stdscr);

	if (n_lines > LINES_MAX)
		n_lines = LINES_MAX;
	if (n_lines < 1 || width < 1)
		return;
	/* A last character in the corner would scroll some terminals. */
	top_draw(&session->top, (size_t)n_lines, (size_t)width - (width > 1), session->lines);
	(void)erase();
	for (int i = 0; i < n_lines; i++) {
		const struct top_line *line = &session->lines[i];

		(void)attrset((int)(style_attributes[line->style] |
				    (line->is_selected ? A_REVERSE : A_NORMAL)));
		(void)mvaddstr(i, 0, line->text);
	}
	(void)attrset(A_NORMAL);
	(void)refresh();
}

static int terminal_key(int key)
{
	static const struct {
		int curses, ours;
	} keys[] = {{KEY_UP, TOP_KEY_UP},           {KEY_DOWN, TOP_KEY_DOWN},
		    {KEY_PPAGE, TOP_KEY_PAGE_UP},   {KEY_NPAGE, TOP_KEY_PAGE_DOWN},
		    {KEY_HOME, TOP_KEY_HOME},       {KEY_END, TOP_KEY_END},
		    {KEY_BACKSPACE, TOP_KEY_ERASE}, {'\b', TOP_KEY_ERASE},
		    {KEY_ENTER, TOP_KEY_ENTER},     {'\r', TOP_KEY_ENTER}};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		if (key == keys[i].curses)
			return keys[i].ours;
	}
	return key < TOP_KEY_UP ? key : 0; /* of the rest, KEY_RESIZE only needs a new picture */
}

/* Takes the keys that have come. Returns whether to go on. */
static bool terminal_hear(struct session *session)
{
	int key;

	while ((key = getch()) != ERR) {
		session->is_changed = true;
		struct top_action action = top_press(&session->top, terminal_key(key));

		if (action.type == TOP_ACTION_QUIT)
			return false;
		if (action.type == TOP_ACTION_REFRESH && !session->is_asked)
			session_ask(session);
		else if (action.type == TOP_ACTION_SET)
			session_set(session, &action.set);
	}
	return true;
}

/* ---- both --------------------------------------------------------------------- */

static void session_look(struct session *session)
{
	uint64_t now_ns = clock_now_ns();

	if (session->is_asked && now_ns >= session->limit_ns) {
		request_report("the scheduler does not answer");
		session_close(session);
	}
	if (!session->is_asked && now_ns >= session->next_ns)
		session_ask(session);
}

static void session_run(struct session *session)
{
	struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.events = POLLIN}};

	/* Without a terminal there is nobody to look. */
	while (terminal_hear(session) && !(fds[0].revents & (POLLHUP | POLLERR))) {
		session_look(session);
		if (session->is_changed)
			terminal_draw(session);
		session->is_changed = false;
		fds[1].fd = session->fd;
		(void)clock_poll(fds, 2, session->is_asked ? session->limit_ns : session->next_ns);
		if (session->fd >= 0 && fds[1].revents)
			session_hear(session);
	}
}

static int parse_interval(char *const *args, uint64_t *ret_ns)
{
	*ret_ns = CLOCK_NS_PER_SEC;
	if (!args[0])
		return CLI_EXIT_OK;
	if (!strcmp(args[0], "-d") && args[1] && !args[2] &&
	    !parse_seconds(args[1], INTERVAL_MIN_NS, INTERVAL_MAX_NS, ret_ns))
		return CLI_EXIT_OK;
	(void)fprintf(stderr, "nvsharectl: top takes -d SECONDS, 0.1 to 3600, or nothing\n");
	return CLI_EXIT_USAGE;
}

int top_command(char *const *args)
{
	struct session *session = calloc(1, sizeof(*session));
	int r = CLI_EXIT_USAGE;

	if (!session)
		return CLI_EXIT_REFUSED;
	session->fd = -1;
	session->coming = &session->statuses[0];
	session->errors = fmemopen(session->error, sizeof(session->error), "w");
	if (session->errors && !parse_interval(args, &session->interval_ns)) {
		top_init(&session->top, user_name);
		if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && terminal_begin()) {
			request_report_to(session->errors);
			session_run(session);
			(void)endwin();
			request_report_to(NULL);
			r = CLI_EXIT_OK;
		} else {
			(void)fprintf(stderr, "nvsharectl: top needs a terminal that TERM names; "
					      "'nvsharectl status' does not\n");
		}
	}
	if (session->errors)
		(void)fclose(session->errors);
	for (size_t i = 0; i < sizeof(session->statuses) / sizeof(*session->statuses); i++)
		status_deinit(&session->statuses[i]);
	if (session->fd >= 0)
		(void)close(session->fd);
	free(session);
	return r;
}
