/* SPDX-License-Identifier: Apache-2.0 */
#include "util/setting.h"

#include "util/clock.h"
#include "util/parse.h"

#include <errno.h>
#include <stdio.h>

/* One written unit in the unit of the field, and its word; 0: the kind has no whole numbers. */
static uint64_t setting_unit(enum setting_kind kind, const char **ret_word)
{
	switch (kind) {
	case SETTING_NUMBER:
		*ret_word = "a whole number";
		return 1;
	case SETTING_SECONDS:
		*ret_word = "whole seconds";
		return CLOCK_NS_PER_SEC;
	case SETTING_MS:
		*ret_word = "milliseconds";
		return CLOCK_NS_PER_MS;
	case SETTING_US:
		*ret_word = "microseconds";
		return 1000;
	case SETTING_SLICE:
		*ret_word = "microseconds";
		return 1;
	case SETTING_BOOL:
	case SETTING_ENUM:
	case SETTING_SIZE:
	case SETTING_DECIMAL:
	case SETTING_SLO:
	case SETTING_OWN:
		break;
	}
	return 0;
}

static int setting_parse_whole(const struct setting *setting, const char *value, void *field)
{
	const char *word;
	uint64_t unit = setting_unit(setting->kind, &word), number;
	int r = parse_u64(value, setting->min / unit, setting->max / unit, &number);

	if (r)
		return r;
	if (setting->kind == SETTING_NUMBER)
		*(uint32_t *)field = (uint32_t)number;
	else
		*(uint64_t *)field = number * unit;
	return 0;
}

/* Taken for seconds, a thousandth of a millisecond comes to 1,000,000 ns. */
static int setting_parse_slo(const struct setting *setting, const char *value, uint32_t *ret_us)
{
	uint64_t ns;
	int r = parse_seconds(value, setting->min * 1000000, setting->max * 1000000, &ns);

	if (!r)
		*ret_us = (uint32_t)(ns / 1000000);
	return r;
}

int setting_parse(const struct setting *setting, const char *value, void *owner)
{
	void *field = (char *)owner + setting->offset;

	switch (setting->kind) {
	case SETTING_BOOL:
		return parse_bool(value, field);
	case SETTING_ENUM:
		return parse_enum(value, setting->names, setting->max, field);
	case SETTING_SIZE:
		return parse_size(value, field);
	case SETTING_DECIMAL:
		return parse_seconds(value, setting->min, setting->max, field);
	case SETTING_NUMBER:
	case SETTING_SECONDS:
	case SETTING_MS:
	case SETTING_US:
	case SETTING_SLICE:
		return setting_parse_whole(setting, value, field);
	case SETTING_SLO:
		return setting_parse_slo(setting, value, field);
	case SETTING_OWN:
		return setting->form->parse(setting, value, field);
	}
	return -EINVAL;
}

static void setting_list(const struct setting *setting, char *buf, size_t size)
{
	size_t n = (size_t)snprintf(buf, size, "one of");

	for (uint64_t i = 0; i < setting->max && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s %s", i ? "," : "", setting->names[i]);
}

void setting_allowed(const struct setting *setting, char buf[SETTING_TEXT_LEN])
{
	const char *word;
	uint64_t unit = setting_unit(setting->kind, &word);

	if (unit)
		(void)snprintf(buf, SETTING_TEXT_LEN, "%s from %llu to %llu", word,
			       (unsigned long long)(setting->min / unit),
			       (unsigned long long)(setting->max / unit));
	else if (setting->kind == SETTING_BOOL)
		(void)snprintf(buf, SETTING_TEXT_LEN, "0 or 1");
	else if (setting->kind == SETTING_ENUM)
		setting_list(setting, buf, SETTING_TEXT_LEN);
	else if (setting->kind == SETTING_SIZE)
		(void)snprintf(buf, SETTING_TEXT_LEN, "a size in bytes, or with K, M, G or T");
	else if (setting->kind == SETTING_DECIMAL)
		(void)snprintf(buf, SETTING_TEXT_LEN, "seconds from %.8g to %.8g",
			       (double)setting->min / (double)CLOCK_NS_PER_SEC,
			       (double)setting->max / (double)CLOCK_NS_PER_SEC);
	else if (setting->kind == SETTING_SLO)
		(void)snprintf(buf, SETTING_TEXT_LEN, "milliseconds from %.10g to %.10g",
			       (double)setting->min / 1000, (double)setting->max / 1000);
	else
		(void)snprintf(buf, SETTING_TEXT_LEN, "%s", setting->form->allowed);
}

static void setting_print_number(uint64_t number, char buf[SETTING_TEXT_LEN])
{
	(void)snprintf(buf, SETTING_TEXT_LEN, "%llu", (unsigned long long)number);
}

void setting_print(const struct setting *setting, const void *owner, char buf[SETTING_TEXT_LEN])
{
	const void *field = (const char *)owner + setting->offset;
	const char *word;

	buf[0] = '\0';
	switch (setting->kind) {
	case SETTING_BOOL:
		setting_print_number(*(const _Bool *)field, buf);
		break;
	case SETTING_ENUM:
		(void)snprintf(buf, SETTING_TEXT_LEN, "%s",
			       setting->names[*(const unsigned int *)field]);
		break;
	case SETTING_NUMBER:
		setting_print_number(*(const uint32_t *)field, buf);
		break;
	case SETTING_DECIMAL:
		(void)snprintf(buf, SETTING_TEXT_LEN, "%.8g",
			       (double)*(const uint64_t *)field / (double)CLOCK_NS_PER_SEC);
		break;
	case SETTING_SLO:
		(void)snprintf(buf, SETTING_TEXT_LEN, "%.10g",
			       (double)*(const uint32_t *)field / 1000);
		break;
	case SETTING_SIZE:
		setting_print_number(*(const uint64_t *)field, buf);
		break;
	case SETTING_SECONDS:
	case SETTING_MS:
	case SETTING_US:
	case SETTING_SLICE:
		setting_print_number(*(const uint64_t *)field / setting_unit(setting->kind, &word),
				     buf);
		break;
	case SETTING_OWN:
		if (setting->form->print)
			setting->form->print(field, buf, SETTING_TEXT_LEN);
		break;
	}
}

void setting_print_default(const struct setting *setting, const void *owner,
			   char buf[SETTING_TEXT_LEN])
{
	buf[0] = '\0';
	if (!setting->unset || setting->kind == SETTING_OWN)
		setting_print(setting, owner, buf);
	if (!*buf && setting->unset)
		(void)snprintf(buf, SETTING_TEXT_LEN, "%s", setting->unset);
}
