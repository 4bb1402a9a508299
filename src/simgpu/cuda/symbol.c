/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of all exported symbols, for cuGetProcAddress. The answer is the newest form of the
 * name that the requested version has, for the requested kind of default stream. This file needs
 * addresses, not types, so it does not include the prototypes.
 */

#include "simgpu/cuda/symbol.h"

#include <stddef.h>
#include <string.h>

enum { FOUND = 0, NOT_FOUND = 1, NOT_SUFFICIENT = 2 };
enum { ERROR_INVALID_VALUE = 1, ERROR_NOT_FOUND = 500 };
enum { FLAG_LEGACY = 1, FLAG_PER_THREAD = 2 };
enum stream { none, legacy, ptsz, ptds };

#define SIM_REAL(base, symbol, since, stream) extern void symbol(void);
#define SIM_STUB(base, symbol, since, stream) extern void symbol(void);
#include "simgpu/cuda/symbols.def"

static const struct symbol {
	const char *base;
	int since;
	enum stream stream;
	void (*address)(void);
} symbols[] = {
#define SIM_REAL(base, symbol, since, stream) {base, since, stream, symbol},
#define SIM_STUB(base, symbol, since, stream) {base, since, stream, symbol},
#include "simgpu/cuda/symbols.def"
};

int symbol_find(const char *name, void **ret, int version, uint64_t flags, int *ret_status)
{
	const struct symbol *s, *best = NULL;
	int is_known = 0, wants_twin = (flags & FLAG_PER_THREAD) != 0, is_twin;
	size_t i;

	if (!name || !ret || (flags & ~(uint64_t)(FLAG_LEGACY | FLAG_PER_THREAD)) || flags == 3)
		return ERROR_INVALID_VALUE;
	for (i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		s = &symbols[i];
		if (strcmp(s->base, name) != 0)
			continue;
		is_known = 1;
		is_twin = s->stream == ptsz || s->stream == ptds;
		if (s->since > version || (is_twin && !wants_twin))
			continue;
		/* A requested twin comes before a legacy form, then the newer form wins. */
		if (!best || (wants_twin && is_twin && best->stream == legacy) ||
		    (s->since >= best->since &&
		     (!wants_twin || is_twin || best->stream == none || best->stream == legacy)))
			best = s;
	}
	*ret = best ? (void *)(uintptr_t)best->address : NULL;
	if (ret_status)
		*ret_status = best ? FOUND : is_known ? NOT_SUFFICIENT : NOT_FOUND;
	return best ? 0 : ERROR_NOT_FOUND;
}
