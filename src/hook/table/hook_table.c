/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/table/hook_table.h"

#include "hook/table/cuda_real.h"
#include "hook/table/hooks.h"
#include "hook/table/name.h"

const struct hook hook_table[] = {
#define CU_HOOK(kind, base, symbol, since, stream, params, args) \
	{#base,          #symbol,                                \
	 since,          HOOK_STREAM_##stream,                   \
	 (void *)symbol, (void *const *)&cuda_real.symbol},
#define CU_REAL(base, symbol, since, stream, params)
#include "hook/table/cuda_hooks.def"
};

const size_t hook_table_len = sizeof(hook_table) / sizeof(hook_table[0]);

const struct hook *hook_table_find(const char *symbol)
{
	if (symbol[0] != 'c' || symbol[1] != 'u')
		return NULL;

	for (size_t i = 0; i < hook_table_len; i++) {
		if (name_is(hook_table[i].symbol, symbol))
			return &hook_table[i];
	}

	return NULL;
}

const struct hook *hook_table_find_real(const char *base, const void *real)
{
	const struct hook *found = NULL;

	for (size_t i = 0; i < hook_table_len; i++) {
		const struct hook *hook = &hook_table[i];

		if (__atomic_load_n(hook->real, __ATOMIC_RELAXED) != real)
			continue;
		/* A driver may have one address for two names: the name in the question decides. */
		if (name_is(hook->base, base))
			return hook;
		found = hook;
	}

	return found;
}
