/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_PLACE_NAME_H
#define NVS_CORE_PLACE_NAME_H

/*
 * The name of a model or of a type of work, as users give it. The bytes behind the text are 0, so
 * names are compared and hashed as bytes.
 *
 * Pure. Zeroed: no name. Threading: none.
 */

#include <stdbool.h>
#include <stddef.h>

#define PLACE_NAME_LEN 64 /* with the 0 at its end */

struct place_name {
	char text[PLACE_NAME_LEN];
};

enum {
	PLACE_NAME_E_SUCCESS_,
	PLACE_NAME_E_LONG, /* PLACE_NAME_LEN bytes or more */
	PLACE_NAME_E_BYTE, /* a byte is no graphic character of ASCII (0x21 to 0x7e) */
};

/* text: len bytes; len 0 gives no name. 0 or PLACE_NAME_E_*; *ret_name is untouched then. */
int place_name_set(const char *text, size_t len, struct place_name *ret_name);

bool place_name_is_set(const struct place_name *name);
bool place_name_is_equal(const struct place_name *a, const struct place_name *b);

#endif
