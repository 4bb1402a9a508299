/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job_gpus.h"

#include "daemon/server.h"
#include "util/parse.h"

#include <string.h>

#define INDEX_MAX 1023

/* The next word of *at, which moves behind it. false: it is not of the form. */
static bool gpus_word(const char **at, char ret_word[NVSHARE_UUID_LEN])
{
	size_t len = strcspn(*at, ",");
	uint64_t index;

	if (len == 0 || len >= NVSHARE_UUID_LEN)
		return false;
	memcpy(ret_word, *at, len);
	ret_word[len] = '\0';
	*at += len;
	if (**at == ',' && !*++*at)
		return false;
	if (!strncmp(ret_word, "GPU-", 4) || !strncmp(ret_word, "MIG-", 4))
		return strspn(ret_word + 4, "0123456789abcdefABCDEF-") == len - 4;
	return parse_u64(ret_word, 0, INDEX_MAX, &index) == 0;
}

bool job_gpus_is_list(const char *text)
{
	char word[NVSHARE_UUID_LEN];

	while (*text) {
		if (!gpus_word(&text, word))
			return false;
	}
	return true;
}

/* The index of the one GPU that word names; SCHED_GPUS_MAX: there is none, or there are two. */
static uint32_t gpus_find_word(const struct server *server, const char *word)
{
	uint32_t found = SCHED_GPUS_MAX;
	uint64_t index;

	if (parse_u64(word, 0, INDEX_MAX, &index) == 0)
		return index < server->gpus.n && server->gpus.at[index].total ? (uint32_t)index
									      : SCHED_GPUS_MAX;
	for (uint32_t i = 0; i < server->gpus.n; i++) {
		char name[NVSHARE_UUID_LEN];

		if (!server->gpus.at[i].total)
			continue;
		gpus_print_uuid(&server->gpus.at[i], name);
		if (strncasecmp(name, word, strlen(word)) != 0)
			continue;
		if (found != SCHED_GPUS_MAX)
			return SCHED_GPUS_MAX;
		found = i;
	}
	return found;
}

int job_gpus_mask(const struct server *server, const char *text, uint32_t *ret_mask)
{
	char word[NVSHARE_UUID_LEN];
	int r = 0;

	*ret_mask = 0;
	while (*text) {
		uint32_t index;

		if (!gpus_word(&text, word))
			return JOB_GPUS_E_FORM;
		index = gpus_find_word(server, word);
		if (index == SCHED_GPUS_MAX)
			r = JOB_GPUS_E_UNKNOWN;
		else
			*ret_mask |= 1u << index;
	}
	return r;
}
