/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Runs a fuzzer's corpus without libFuzzer: `replay_x DIR|FILE...` feeds each file to
 * LLVMFuzzerTestOneInput once. A crash is the failure; the file's name is printed first.
 * A folder also fails if its seeds never get one kind of input accepted: they become stale
 * when what they encode changes. `make fuzz` finds others.
 */

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* The number of a kind of input that none has been accepted of so far; -1: there is none. */
int fuzz_left_out(void);

static unsigned int n_run;

static int replay_file(const char *path)
{
	uint8_t *data = NULL;
	size_t size = 0;
	FILE *file = fopen(path, "rb");

	if (!file) {
		fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
		return 1;
	}
	for (;;) {
		uint8_t *more = realloc(data, size + 65536);
		size_t n;

		if (!more)
			abort();
		data = more;
		n = fread(data + size, 1, 65536, file);
		size += n;
		if (n == 0)
			break;
	}
	(void)fclose(file);
	fprintf(stderr, "replay: %s\n", path);
	(void)LLVMFuzzerTestOneInput(data, size);
	free(data);
	n_run++;
	return 0;
}

static int replay(const char *path)
{
	struct dirent *entry;
	int r = 0;
	DIR *dir = opendir(path);

	if (!dir)
		return replay_file(path);
	while ((entry = readdir(dir))) {
		char name[4096];

		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		r |= replay_file(name);
	}
	(void)closedir(dir);
	if (fuzz_left_out() >= 0) {
		fprintf(stderr, "replay: %s: nothing of kind %d is accepted\n", path,
			fuzz_left_out());
		r = 1;
	}
	return r;
}

int main(int argc, char **argv)
{
	int r = 0;

	for (int i = 1; i < argc; i++)
		r |= replay(argv[i]);
	printf("%u passed, %d failed\n", n_run, r);
	return r || n_run == 0;
}
