/* SPDX-License-Identifier: Apache-2.0 */
#include "door.h"

#include "app.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool door_is_open(const char *path)
{
	return access(path, F_OK) == 0;
}

static void read_numbers(FILE *file, uint32_t ret_numbers[DOOR_N_NUMBERS])
{
	memset(ret_numbers, 0, DOOR_N_NUMBERS * sizeof(*ret_numbers));
	for (int i = 0; i < DOOR_N_NUMBERS && fscanf(file, "%9u", &ret_numbers[i]) == 1; i++)
		;
}

bool door_wait(const char *path, uint32_t ret_numbers[DOOR_N_NUMBERS])
{
	char end[4096];
	FILE *file;

	(void)snprintf(end, sizeof(end), "%s.end", path);
	while (!(file = fopen(path, "re"))) {
		if (door_is_open(end))
			return false;
		app_sleep_ms(1);
	}
	read_numbers(file, ret_numbers);
	(void)fclose(file);
	return true;
}
