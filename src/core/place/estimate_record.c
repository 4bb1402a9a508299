/* SPDX-License-Identifier: Apache-2.0 */
#include "core/place/estimate_record.h"

#include <assert.h>
#include <string.h>

static const char header[] = "nvshare-estimates 1\n";

/* ---- writing --------------------------------------------------------------- */

struct record_writer {
	char *text;
	size_t len, size;
};

static void record_put(struct record_writer *w, const char *text, size_t len)
{
	assert(w->size - w->len >= len);
	memcpy(w->text + w->len, text, len);
	w->len += len;
}

static void record_put_number(struct record_writer *w, uint64_t number, char after)
{
	char digits[21];
	size_t at = sizeof(digits);

	digits[--at] = after;
	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	record_put(w, digits + at, sizeof(digits) - at);
}

static void record_put_name(struct record_writer *w, const struct place_name *name)
{
	size_t len = 0;

	while (len < PLACE_NAME_LEN && name->text[len])
		len++;
	if (len == 0 || name->text[0] == '-')
		record_put(w, "-", 1);
	record_put(w, name->text, len);
	record_put(w, " ", 1);
}

size_t estimate_record_write(const struct estimate *estimate, uint32_t owner_max, char *ret_text,
			     size_t size)
{
	struct record_writer w = {ret_text, 0, size};
	uint64_t n = 0;

	record_put(&w, header, sizeof(header) - 1);
	for (uint32_t i = estimate->used.first; i != LIST_END; i = estimate->entries[i].link.next) {
		const struct estimate_entry *e = &estimate->entries[i];

		for (uint32_t p = e->owner <= owner_max ? e->n_points : 0;
		     p-- > 0;) { /* the most recent point last */
			record_put_number(&w, e->owner, ' ');
			record_put_name(&w, &e->model);
			record_put_name(&w, &e->type);
			record_put_number(&w, e->points[p].units, ' ');
			record_put_number(&w, e->points[p].bytes, '\n');
			n++;
		}
	}
	record_put(&w, "end ", 4);
	record_put_number(&w, n, '\n');
	return w.len;
}

/* ---- reading --------------------------------------------------------------- */

struct record_point {
	struct estimate_work work;
	uint64_t bytes;
};

struct record_reader {
	const char *text;
	size_t len, at;
};

/* The bytes up to end, which is passed over. false: there is no end, or nothing before it. */
static bool record_take(struct record_reader *r, char end, const char **ret_text, size_t *ret_len)
{
	const char *from = r->text + r->at;
	size_t len = 0;

	while (r->at + len < r->len && from[len] != end && from[len] != '\n')
		len++;
	if (len == 0 || r->at + len == r->len || from[len] != end)
		return false;
	r->at += len + 1;
	*ret_text = from;
	*ret_len = len;
	return true;
}

/* Digits alone, without a 0 before others: one number has one form. */
static bool record_take_number(struct record_reader *r, char end, uint64_t max,
			       uint64_t *ret_number)
{
	const char *text;
	size_t len;
	uint64_t number = 0;

	if (!record_take(r, end, &text, &len) || len > 19 || (len > 1 && text[0] == '0'))
		return false;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		number = number * 10 + (uint64_t)(text[i] - '0');
	}
	*ret_number = number;
	return number <= max;
}

static bool record_take_name(struct record_reader *r, struct place_name *ret_name)
{
	const char *text;
	size_t len;

	if (!record_take(r, ' ', &text, &len))
		return false;
	if (text[0] == '-') {
		text++;
		len--;
		/* "-" alone is no name; any other "-" stands before one that begins so. */
		if (len > 0 && text[0] != '-')
			return false;
	}
	return place_name_set(text, len, ret_name) == 0;
}

static bool record_take_point(struct record_reader *r, struct record_point *ret)
{
	uint64_t owner;

	*ret = (struct record_point){.work.has_units = true};
	if (!record_take_number(r, ' ', UINT32_MAX, &owner) ||
	    !record_take_name(r, &ret->work.model) || !record_take_name(r, &ret->work.type) ||
	    !record_take_number(r, ' ', ESTIMATE_UNITS_MAX, &ret->work.units) ||
	    !record_take_number(r, '\n', ESTIMATE_BYTES_MAX, &ret->bytes))
		return false;
	ret->work.owner = (uint32_t)owner;
	return ret->bytes > 0;
}

static bool record_begins(const struct record_reader *r, const char *text, size_t len)
{
	return r->len - r->at >= len && memcmp(r->text + r->at, text, len) == 0;
}

/* Goes through the lines; estimate may be NULL, which only checks them. */
static int record_read(struct estimate *estimate, const char *text, size_t len, uint32_t *ret_line)
{
	struct record_reader r = {text, len, 0};
	struct record_point point;
	uint64_t n = 0, n_said;

	*ret_line = 1;
	if (!record_begins(&r, header, sizeof(header) - 1))
		return ESTIMATE_RECORD_E_VERSION;
	r.at = sizeof(header) - 1;
	for (;; n++) {
		++*ret_line;
		if (r.at == len)
			return ESTIMATE_RECORD_E_CUT;
		if (record_begins(&r, "end ", 4))
			break;
		if (!record_take_point(&r, &point))
			return ESTIMATE_RECORD_E_LINE;
		if (estimate)
			estimate_restore(estimate, &point.work, point.bytes);
	}
	r.at += 4;
	if (!record_take_number(&r, '\n', UINT64_MAX, &n_said) || n_said != n || r.at != len)
		return ESTIMATE_RECORD_E_CUT;
	return 0;
}

int estimate_record_read(struct estimate *estimate, const char *text, size_t len,
			 uint32_t *ret_line)
{
	int r = record_read(NULL, text, len, ret_line);

	return r ? r : record_read(estimate, text, len, ret_line);
}
