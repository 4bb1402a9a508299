/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_ESTIMATE_RECORD_H
#define NVS_CORE_ESTIMATE_RECORD_H

/*
 * The table of estimates as text, for a file that the caller writes and reads.
 *
 * The first line is "nvshare-estimates 1", with the version. Each further line is a point:
 * "OWNER MODEL TYPE UNITS BYTES", separated by single blanks; "-" stands for no name. A name that
 * begins with "-" has another "-" before it. The least recently used work comes first. The last
 * line is "end N" with the number of points, so that a file that was cut off is recognised.
 *
 * Pure. Threading: none.
 */

#include "core/place/estimate.h"

/* The bytes of a record of n entries, at the most. */
#define ESTIMATE_RECORD_LINE_MAX 192
#define ESTIMATE_RECORD_MAX(n)   (((size_t)(n)*ESTIMATE_POINTS + 2) * ESTIMATE_RECORD_LINE_MAX)

enum {
	ESTIMATE_RECORD_E_SUCCESS_,
	ESTIMATE_RECORD_E_VERSION, /* the first line is another one */
	ESTIMATE_RECORD_E_LINE, /* a line has not the form above, or a value is out of its range */
	ESTIMATE_RECORD_E_CUT,  /* the last line is missing, or counts other lines than there are,
				 * or something follows it */
};

/*
 * Returns the number of bytes, without a 0 at the end. size: at least ESTIMATE_RECORD_MAX(). Owners
 * above owner_max are left out: their numbers may be another's by the time that it is read.
 */
size_t estimate_record_write(const struct estimate *estimate, uint32_t owner_max, char *ret_text,
			     size_t size);

/*
 * Puts the points of the record into the table, which was empty before. A record with more entries
 * than the table has leaves the most recently used ones. Returns 0 or ESTIMATE_RECORD_E_*; then the
 * table is untouched, and *ret_line is the number of the bad line, from 1.
 */
int estimate_record_read(struct estimate *estimate, const char *text, size_t len,
			 uint32_t *ret_line);

#endif
