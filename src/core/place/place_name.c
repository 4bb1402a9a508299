/* SPDX-License-Identifier: Apache-2.0 */
#include "core/place/place_name.h"

#include <string.h>

int place_name_set(const char *text, size_t len, struct place_name *ret_name)
{
	struct place_name name = {{0}};

	if (len >= PLACE_NAME_LEN)
		return PLACE_NAME_E_LONG;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < 0x21 || text[i] > 0x7e)
			return PLACE_NAME_E_BYTE;
		name.text[i] = text[i];
	}
	*ret_name = name;
	return 0;
}

bool place_name_is_set(const struct place_name *name)
{
	return name->text[0] != 0;
}

bool place_name_is_equal(const struct place_name *a, const struct place_name *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}
