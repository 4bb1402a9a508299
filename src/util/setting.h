/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_SETTING_H
#define NVS_UTIL_SETTING_H

/*
 * One setting is one row of a table: its names, the kind and the range of its value, and what it
 * does. Text becomes a value by the row, and a value becomes text; so no reader of a setting has
 * words or limits of its own. The scheduler and the library have one table each.
 *
 * The value lies at `offset` in the owner's structure, in the type that the kind names.
 * Pure, and errno stays as it was; tables are constant, so any thread may use them.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum setting_kind {
	SETTING_BOOL,    /* bool */
	SETTING_ENUM,    /* an enum or unsigned int: the place of a word in names */
	SETTING_NUMBER,  /* uint32_t */
	SETTING_SIZE,    /* uint64_t: bytes */
	SETTING_DECIMAL, /* uint64_t: nanoseconds, written as seconds with or without a fraction */
	SETTING_SECONDS, /* uint64_t: nanoseconds, written as whole seconds */
	SETTING_MS,      /* uint64_t: nanoseconds, written as whole milliseconds */
	SETTING_US,      /* uint64_t: nanoseconds, written as whole microseconds */
	SETTING_SLICE,   /* uint64_t: microseconds, written as they are */
	SETTING_SLO, /* uint32_t: microseconds, written as milliseconds, a fraction is allowed */
	SETTING_OWN, /* what form says */
};

struct setting;

/* A value that only its owner understands. */
struct setting_form {
	/* 0, or -EINVAL or -ERANGE; field is untouched then. */
	int (*parse)(const struct setting *setting, const char *value, void *field);
	/* As parse would take it; NULL: no text stands for the default, see unset. */
	void (*print)(const void *field, char *buf, size_t size);
	const char *allowed; /* "a directory" */
};

struct setting {
	const char *variable; /* NULL: no variable sets it */
	const char *alias;    /* another variable for the same, an older name; NULL: none */
	const char *key;      /* a shorter name that tools use; NULL: none */
	bool is_fixed;        /* it stays while the program runs */
	enum setting_kind kind;
	size_t offset, size;
	uint64_t min, max;               /* in the unit of the field; ENUM: max words */
	const char *const *names;        /* ENUM */
	const struct setting_form *form; /* OWN */
	const char *unset;               /* says the default where its value does not */
	const char *help;                /* what it does, in one sentence */
};

/* The offset of a field; a field whose type is another one does not compile. */
#define SETTING_AT(owner, field, type)                                                       \
	(offsetof(owner, field) +                                                            \
	 0 * sizeof(char[__builtin_types_compatible_p(__typeof__(((owner *)0)->field), type) \
				 ? 1                                                         \
				 : -1]))

/* Long enough for what is allowed, and for any printed value. */
#define SETTING_TEXT_LEN 192

/* Sets the field in owner. 0, or -EINVAL (not of the kind) or -ERANGE; owner is untouched then. */
int setting_parse(const struct setting *setting, const char *value, void *owner);

/* The values that setting_parse() takes: "one of auto, serial", "seconds from 0.01 to 86400". */
void setting_allowed(const struct setting *setting, char buf[SETTING_TEXT_LEN]);

/* The value in owner as setting_parse() would take it; "" where the form has no text for it. */
void setting_print(const struct setting *setting, const void *owner, char buf[SETTING_TEXT_LEN]);

/* The same of owner's defaults, but with the row's own words where it has some. */
void setting_print_default(const struct setting *setting, const void *owner,
			   char buf[SETTING_TEXT_LEN]);

#endif
