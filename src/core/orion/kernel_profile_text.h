/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_KERNEL_PROFILE_TEXT_H
#define NVS_CORE_KERNEL_PROFILE_TEXT_H

/*
 * Profiles of kernels as text, for a file that the caller writes and reads. Tabs separate the
 * fields, which stand in columns here.
 *
 *     # nvshare kernel profiles 1, model resnet50, gpu NVIDIA H100 80GB HBM3
 *     key              name     grid_blocks block_threads sms mean_ns min_ns count bytes class
 *     00c0ffee00c0ffee _Z3addPf 160         256           20  5100    4996   12    0     memory
 *
 * The first line has the version, the second one the names of the columns. Each further line is a
 * kernel, in the order of the slots. Names and numbers are as kernel_profile.h has them. A number
 * has one form, without a sign or zeros before it, and key has 16 digits. So a text that was read
 * is printed as the same bytes.
 *
 * Further fields at the end of the first line, and further columns, are ignored: they come from a
 * later release. A later release that changes the meaning of a column raises the version.
 *
 * Reading is line by line, into an empty table of the caller's. Only after the last line the caller
 * merges that table into the live one, so a bad file changes nothing.
 *
 * Pure. Threading: none.
 */

#include "core/orion/kernel_profile.h"

#include <stddef.h>
#include <stdint.h>

/* The bytes of a text, at the most. */
#define KERNEL_PROFILE_TEXT_HEADER_MAX 512
#define KERNEL_PROFILE_TEXT_LINE_MAX   256

enum {
	KERNEL_PROFILE_TEXT_E_SUCCESS_,
	KERNEL_PROFILE_TEXT_E_HEADER,    /* the first line is another one, or missing */
	KERNEL_PROFILE_TEXT_E_VERSION,   /* the first line has another version */
	KERNEL_PROFILE_TEXT_E_COLUMNS,   /* the second line lacks a column, or is missing */
	KERNEL_PROFILE_TEXT_E_FIELDS,    /* a line has more or fewer fields than the second one */
	KERNEL_PROFILE_TEXT_E_VALUE,     /* a field is no such value, or out of its range */
	KERNEL_PROFILE_TEXT_E_DUPLICATE, /* an earlier line has the same key */
	KERNEL_PROFILE_TEXT_E_FULL,      /* the table has no room for this line */
	KERNEL_PROFILE_TEXT_E_COUNT_,
};

struct kernel_profile_header {
	struct kernel_profile_name model, gpu;
};

struct kernel_profile_reader {
	struct kernel_profiles *profiles;
	struct kernel_profile_header header; /* set after the first line */
	uint32_t n_columns;
	uint32_t line;      /* number of the last line that was read, from 1 */
	const char *column; /* NULL, or which value the last error is about */
};

/* Writes the first two lines. Returns their bytes, without a 0 at the end. */
size_t kernel_profile_text_header(const struct kernel_profile_header *header,
				  char ret_text[KERNEL_PROFILE_TEXT_HEADER_MAX]);

/* Writes the line of a profile. Returns its bytes, without a 0 at the end. */
size_t kernel_profile_text_line(const struct kernel_profile *profile,
				char ret_text[KERNEL_PROFILE_TEXT_LINE_MAX]);

/* profiles: an empty table; borrowed until the end. */
void kernel_profile_reader_init(struct kernel_profile_reader *reader,
				struct kernel_profiles *profiles);

/*
 * The next line, without the newline at its end. Returns 0 or KERNEL_PROFILE_TEXT_E_*; then no
 * further call is allowed, and the caller drops the table.
 */
int kernel_profile_reader_line(struct kernel_profile_reader *reader, const char *line, size_t len);

/*
 * There is no further line. Returns 0, or an error as above for a line that is missing, with its
 * number in line.
 */
int kernel_profile_reader_end(struct kernel_profile_reader *reader);

/* The reason of an error, for a message "FILE: line LINE: column COLUMN: REASON". */
const char *kernel_profile_text_reason(int error);

#endif
