/* SPDX-License-Identifier: Apache-2.0 */
#include "core/orion/kernel_profile_text.h"

#include "core/u64.h"

#include <assert.h>
#include <string.h>

#define TITLE      "# nvshare kernel profiles "
#define VERSION    1
#define KEY_DIGITS 16

enum text_column {
	TEXT_KEY,
	TEXT_NAME,
	TEXT_BLOCKS,
	TEXT_THREADS,
	TEXT_SMS,
	TEXT_MEAN,
	TEXT_MIN,
	TEXT_COUNT,
	TEXT_BYTES,
	TEXT_CLASS,
	TEXT_COLUMN_COUNT_,
};

static const char *const columns[TEXT_COLUMN_COUNT_] = {
	"key",     "name",   "grid_blocks", "block_threads", "sms",
	"mean_ns", "min_ns", "count",       "bytes",         "class",
};

/* ---- writing ---------------------------------------------------------------- */

struct text_writer {
	char *text;
	size_t len, size;
};

static void text_put(struct text_writer *w, const char *text)
{
	for (; *text; text++) {
		assert(w->len < w->size);
		w->text[w->len++] = *text;
	}
}

static void text_put_number(struct text_writer *w, uint64_t number)
{
	char digits[21] = "";
	size_t at = sizeof(digits) - 1;

	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	text_put(w, "\t");
	text_put(w, digits + at);
}

static void text_put_key(struct text_writer *w, uint64_t key)
{
	char digits[KEY_DIGITS + 1] = "";

	for (int i = KEY_DIGITS - 1; i >= 0; i--, key >>= 4)
		digits[i] = "0123456789abcdef"[key & 15];
	text_put(w, digits);
}

size_t kernel_profile_text_header(const struct kernel_profile_header *header,
				  char ret_text[KERNEL_PROFILE_TEXT_HEADER_MAX])
{
	struct text_writer w = {ret_text, 0, KERNEL_PROFILE_TEXT_HEADER_MAX};

	text_put(&w, TITLE "1\tmodel ");
	text_put(&w, header->model.text);
	text_put(&w, "\tgpu ");
	text_put(&w, header->gpu.text);
	for (int i = 0; i < TEXT_COLUMN_COUNT_; i++) {
		text_put(&w, i == 0 ? "\n" : "\t");
		text_put(&w, columns[i]);
	}
	text_put(&w, "\n");
	return w.len;
}

size_t kernel_profile_text_line(const struct kernel_profile *profile,
				char ret_text[KERNEL_PROFILE_TEXT_LINE_MAX])
{
	struct text_writer w = {ret_text, 0, KERNEL_PROFILE_TEXT_LINE_MAX};

	text_put_key(&w, profile->key);
	text_put(&w, "\t");
	text_put(&w, profile->name.text);
	text_put_number(&w, profile->blocks);
	text_put_number(&w, profile->threads);
	text_put_number(&w, profile->sms);
	text_put_number(&w, profile->mean_ns);
	text_put_number(&w, profile->min_ns);
	text_put_number(&w, profile->count);
	text_put_number(&w, profile->bytes);
	text_put(&w, "\t");
	text_put(&w, kernel_class_name(profile->class));
	text_put(&w, "\n");
	return w.len;
}

/* ---- reading ---------------------------------------------------------------- */

struct text_field {
	const char *text;
	size_t len;
};

/* The fields of a line; at is behind its end when there is none left. */
struct text_fields {
	const char *line;
	size_t len, at;
};

static bool text_next(struct text_fields *fields, struct text_field *ret)
{
	const char *from = fields->line + fields->at;
	size_t len = 0;

	if (fields->at > fields->len)
		return false;
	while (fields->at + len < fields->len && from[len] != '\t')
		len++;
	*ret = (struct text_field){from, len};
	fields->at += len + 1;
	return true;
}

/* Takes the beginning off the field. */
static bool text_begins(struct text_field *field, const char *begin)
{
	size_t len = 0;

	for (; begin[len]; len++) {
		if (len == field->len || field->text[len] != begin[len])
			return false;
	}
	field->text += len;
	field->len -= len;
	return true;
}

static bool text_is(const struct text_field *field, const char *text)
{
	struct text_field rest = *field;

	return text_begins(&rest, text) && rest.len == 0;
}

static bool text_number(const struct text_field *field, uint64_t min, uint64_t max,
			uint64_t *ret_number)
{
	uint64_t number = 0;

	/* 19 digits do not overflow, and no maximum has more. */
	if (field->len == 0 || field->len > 19 || (field->len > 1 && field->text[0] == '0'))
		return false;
	for (size_t i = 0; i < field->len; i++) {
		if (field->text[i] < '0' || field->text[i] > '9')
			return false;
		number = number * 10 + (uint64_t)(field->text[i] - '0');
	}
	*ret_number = number;
	return u64_is_within(number, min, max);
}

static bool text_number_u32(const struct text_field *field, uint32_t min, uint32_t max,
			    uint32_t *ret_number)
{
	uint64_t number;

	if (!text_number(field, min, max, &number))
		return false;
	*ret_number = (uint32_t)number;
	return true;
}

static bool text_key(const struct text_field *field, uint64_t *ret_key)
{
	uint64_t key = 0;

	if (field->len != KEY_DIGITS)
		return false;
	for (size_t i = 0; i < KEY_DIGITS; i++) {
		char c = field->text[i];

		if (c >= '0' && c <= '9')
			key = key << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			key = key << 4 | (uint64_t)(c - 'a' + 10);
		else
			return false;
	}
	*ret_key = key;
	return true;
}

/* Escapes stay as they are. */
static bool text_name(const struct text_field *field, struct kernel_profile_name *ret_name)
{
	if (field->len == 0 || field->len >= sizeof(ret_name->text))
		return false;
	for (size_t i = 0; i < field->len; i++) {
		if (field->text[i] < ' ' || field->text[i] > '~')
			return false;
	}
	memset(ret_name, 0, sizeof(*ret_name));
	memcpy(ret_name->text, field->text, field->len);
	return true;
}

static bool text_class(const struct text_field *field, enum kernel_class *ret_class)
{
	for (int i = 0; i < KERNEL_CLASS_COUNT_; i++) {
		if (text_is(field, kernel_class_name((enum kernel_class)i))) {
			*ret_class = (enum kernel_class)i;
			return true;
		}
	}
	return false;
}

static bool text_value(const struct text_field *field, enum text_column column,
		       struct kernel_profile *p)
{
	switch (column) {
	case TEXT_KEY:
		return text_key(field, &p->key);
	case TEXT_NAME:
		return text_name(field, &p->name);
	case TEXT_BLOCKS:
		return text_number(field, 1, KERNEL_PROFILE_BLOCKS_MAX, &p->blocks);
	case TEXT_THREADS:
		return text_number_u32(field, 1, KERNEL_PROFILE_THREADS_MAX, &p->threads);
	case TEXT_SMS:
		return text_number_u32(field, 1, KERNEL_PROFILE_SMS_MAX, &p->sms);
	case TEXT_MEAN:
		return text_number(field, 1, KERNEL_PROFILE_NS_MAX, &p->mean_ns);
	case TEXT_MIN: /* behind the mean, which it cannot exceed */
		return text_number(field, 1, p->mean_ns, &p->min_ns);
	case TEXT_COUNT:
		return text_number_u32(field, 1, KERNEL_PROFILE_COUNT_MAX, &p->count);
	case TEXT_BYTES:
		return text_number(field, 0, KERNEL_PROFILE_BYTES_MAX, &p->bytes);
	case TEXT_CLASS:
		return text_class(field, &p->class);
	case TEXT_COLUMN_COUNT_:
		break;
	}
	return true; /* a column of a later release */
}

static int reader_first_line(struct kernel_profile_reader *reader, struct text_fields *fields)
{
	struct text_field field;
	uint64_t version;

	if (!text_next(fields, &field) || !text_begins(&field, TITLE) ||
	    !text_number(&field, 1, UINT64_MAX, &version))
		return KERNEL_PROFILE_TEXT_E_HEADER;
	if (version != VERSION)
		return KERNEL_PROFILE_TEXT_E_VERSION;
	reader->column = "model";
	if (!text_next(fields, &field) || !text_begins(&field, "model ") ||
	    !text_name(&field, &reader->header.model))
		return KERNEL_PROFILE_TEXT_E_HEADER;
	reader->column = "gpu";
	if (!text_next(fields, &field) || !text_begins(&field, "gpu ") ||
	    !text_name(&field, &reader->header.gpu))
		return KERNEL_PROFILE_TEXT_E_HEADER;
	reader->column = NULL;
	return 0;
}

static int reader_columns(struct kernel_profile_reader *reader, struct text_fields *fields)
{
	struct text_field field;

	while (text_next(fields, &field)) {
		if (reader->n_columns < TEXT_COLUMN_COUNT_ &&
		    !text_is(&field, columns[reader->n_columns]))
			break;
		reader->n_columns++;
	}
	if (reader->n_columns >= TEXT_COLUMN_COUNT_)
		return 0;
	reader->column = columns[reader->n_columns];
	return KERNEL_PROFILE_TEXT_E_COLUMNS;
}

static int reader_kernel(struct kernel_profile_reader *reader, struct text_fields *fields)
{
	struct kernel_profiles *profiles = reader->profiles;
	struct text_fields counted = *fields;
	struct kernel_profile profile = {0};
	struct text_field field;
	uint32_t n = 0;

	while (text_next(&counted, &field))
		n++;
	if (n != reader->n_columns)
		return KERNEL_PROFILE_TEXT_E_FIELDS;
	for (int i = 0; i < TEXT_COLUMN_COUNT_ && text_next(fields, &field); i++) {
		if (!text_value(&field, (enum text_column)i, &profile)) {
			reader->column = columns[i];
			return KERNEL_PROFILE_TEXT_E_VALUE;
		}
	}
	if (kernel_profiles_find(profiles, profile.key))
		return KERNEL_PROFILE_TEXT_E_DUPLICATE;
	return kernel_profiles_add(profiles, &profile) ? 0 : KERNEL_PROFILE_TEXT_E_FULL;
}

void kernel_profile_reader_init(struct kernel_profile_reader *reader,
				struct kernel_profiles *profiles)
{
	assert(profiles->used.n == 0);
	*reader = (struct kernel_profile_reader){.profiles = profiles};
}

int kernel_profile_reader_line(struct kernel_profile_reader *reader, const char *line, size_t len)
{
	struct text_fields fields = {line, len, 0};

	reader->line++;
	if (reader->line == 1)
		return reader_first_line(reader, &fields);
	return reader->line == 2 ? reader_columns(reader, &fields) : reader_kernel(reader, &fields);
}

int kernel_profile_reader_end(struct kernel_profile_reader *reader)
{
	if (reader->line >= 2)
		return 0;
	reader->line++;
	return reader->line == 1 ? KERNEL_PROFILE_TEXT_E_HEADER : KERNEL_PROFILE_TEXT_E_COLUMNS;
}

const char *kernel_profile_text_reason(int error)
{
	static const char *const reasons[KERNEL_PROFILE_TEXT_E_COUNT_] = {
		[KERNEL_PROFILE_TEXT_E_SUCCESS_] = "nothing is wrong",
		[KERNEL_PROFILE_TEXT_E_HEADER] =
			"the first line is not \"" TITLE "1\" with model and gpu",
		[KERNEL_PROFILE_TEXT_E_VERSION] = "the version is not 1",
		[KERNEL_PROFILE_TEXT_E_COLUMNS] =
			"the second line does not name all columns in their order",
		[KERNEL_PROFILE_TEXT_E_FIELDS] =
			"the line has more or fewer fields than there are columns",
		[KERNEL_PROFILE_TEXT_E_VALUE] = "the value has a wrong form or is out of range",
		[KERNEL_PROFILE_TEXT_E_DUPLICATE] = "an earlier line has the same key",
		[KERNEL_PROFILE_TEXT_E_FULL] = "there is no room for so many kernels",
	};

	assert(error >= 0 && error < KERNEL_PROFILE_TEXT_E_COUNT_);
	return reasons[error];
}
