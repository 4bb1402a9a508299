// SPDX-License-Identifier: Apache-2.0
/*
 * The functions of nvshare/orion.h for tests of nvshare.orion: they write down how they are called,
 * and fail on demand. One thread at a time calls them.
 */

#define NVSHARE_IS_LIBRARY
#include <nvshare/orion.h>

#include <stdio.h>
#include <string.h>

static char noted[65536];
static char failing[64];
static int failure;
static _Thread_local int client = ORION_NO_CLIENT;
static int is_enabled = 1;
static struct orion_config settings = {0.5f, 0.025f, 10, 10, 1, 0, 132};

/* One more line of what was called. */
ORION_API void fake_note(const char *line)
{
	size_t length = strlen(noted);

	snprintf(noted + length, sizeof(noted) - length, "%s\n", line);
}

/* The lines so far. */
ORION_API const char *fake_notes(void)
{
	return noted;
}

ORION_API void fake_forget(void)
{
	noted[0] = '\0';
}

/* From now on the function answers so, and does nothing. */
ORION_API void fake_fail(const char *name, int answer)
{
	snprintf(failing, sizeof(failing), "%s", name);
	failure = answer;
}

/* Its answer: 0, or what fake_fail() asked for. */
static int note(const char *name, const char *arguments)
{
	char line[256];

	snprintf(line, sizeof(line), "%s(%s)", name, arguments);
	fake_note(line);
	return strcmp(name, failing) ? 0 : failure;
}

static int note_number(const char *name, double number)
{
	char text[32];

	snprintf(text, sizeof(text), "%g", number);
	return note(name, text);
}

int orion_start_scheduler(int num_clients)
{
	return note_number("start_scheduler", num_clients);
}

int orion_stop_scheduler(void)
{
	return note("stop_scheduler", "");
}

int orion_set_hp_latency(float latency_ms)
{
	return note_number("set_hp_latency", latency_ms);
}

int orion_init(int num_clients)
{
	return note_number("init", num_clients);
}

int orion_shutdown(void)
{
	return note("shutdown", "");
}

int orion_set_client_idx(int idx)
{
	int r = note_number("set_client_idx", idx);

	if (r == 0)
		client = idx;
	return r;
}

int orion_get_client_idx(void)
{
	return client;
}

int orion_set_enabled(int enabled)
{
	is_enabled = enabled;
	return note_number("set_enabled", enabled);
}

int orion_is_enabled(void)
{
	return is_enabled;
}

int orion_load_profile(const char *filepath)
{
	return note("load_profile", filepath);
}

int orion_start_profiling(const char *model_name)
{
	return note("start_profiling", model_name);
}

int orion_end_profiling(const char *output_path)
{
	return note("end_profiling", output_path);
}

int orion_get_stats(struct orion_stats *ret, size_t size)
{
	struct orion_stats stats = {1, 2, 3, 1ull << 40};
	int r = note_number("get_stats", size);

	if (r == 0)
		memcpy(ret, &stats, size);
	return r;
}

int orion_get_config(struct orion_config *ret, size_t size)
{
	int r = note_number("get_config", size);

	if (r == 0)
		memcpy(ret, &settings, size);
	return r;
}

int orion_set_config(const struct orion_config *config, size_t size)
{
	int r = note_number("set_config", size);

	if (r == 0)
		memcpy(&settings, config, size);
	return r;
}
