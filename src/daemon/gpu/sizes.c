/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/sizes.h"

#include "daemon/gpu/gpus.h"
#include "util/parse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

uint64_t sizes_of(const struct sizes *sizes, const uint8_t uuid[16])
{
	for (uint32_t i = 0; i < sizes->n; i++) {
		if (memcmp(sizes->at[i].uuid, uuid, sizeof(sizes->at[i].uuid)) == 0)
			return sizes->at[i].total;
	}
	return 0;
}

/* "GPU-8d0a...=80GiB" */
static int sizes_add(struct sizes *sizes, char *word)
{
	char *size = strchr(word, '=');
	uint8_t uuid[16];
	uint64_t total;

	if (!size || sizes->n == SCHED_GPUS_MAX)
		return -EINVAL;
	*size++ = '\0';
	if (!nvml_parse_uuid(word, uuid) || sizes_of(sizes, uuid))
		return -EINVAL;
	if (parse_size(size, &total) || !gpus_possible_total(total))
		return -EINVAL;
	memcpy(sizes->at[sizes->n].uuid, uuid, sizeof(uuid));
	sizes->at[sizes->n++].total = total;
	return 0;
}

int sizes_parse(const char *s, struct sizes *ret)
{
	struct sizes sizes = {.n = 0};
	bool is_last = false;
	char word[80];

	if (!strcmp(s, "none")) {
		*ret = sizes;
		return 0;
	}
	while (!is_last) {
		size_t len = strcspn(s, ",");

		if (len >= sizeof(word))
			return -EINVAL;
		memcpy(word, s, len);
		word[len] = '\0';
		if (sizes_add(&sizes, word))
			return -EINVAL;
		is_last = s[len] == '\0';
		s += len + 1;
	}
	*ret = sizes;
	return 0;
}

void sizes_print(const struct sizes *sizes, char *buf, size_t size)
{
	size_t n = (size_t)snprintf(buf, size, "%s", sizes->n ? "" : "none");

	for (uint32_t i = 0; i < sizes->n && n < size; i++) {
		const uint8_t *uuid = sizes->at[i].uuid;

		n += (size_t)snprintf(buf + n, size - n, "%sGPU-", i ? "," : "");
		for (size_t j = 0; j < sizeof(sizes->at[i].uuid) && n < size; j++)
			n += (size_t)snprintf(buf + n, size - n, "%s%02x",
					      j == 4 || j == 6 || j == 8 || j == 10 ? "-" : "",
					      uuid[j]);
		if (n < size)
			n += (size_t)snprintf(buf + n, size - n, "=%llu",
					      (unsigned long long)sizes->at[i].total);
	}
}
