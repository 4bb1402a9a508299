/* SPDX-License-Identifier: Apache-2.0 */
#include "util/parse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/*
 * strtoull() is not strict: it takes signs, leading blanks and the locale's digits. It also
 * changes errno, which a hooked program must not see.
 */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Reads the digits at *s into *ret, and moves *s behind them. */
static int take_digits(const char **s, uint64_t *ret)
{
	uint64_t value = 0;

	if (!is_digit(**s))
		return -EINVAL;
	for (; is_digit(**s); (*s)++) {
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(**s - '0'), &value))
			return -ERANGE;
	}
	*ret = value;
	return 0;
}

/* Reads ".25" at *s into *ret as billionths, and moves *s behind it; without a point: 0. */
static int take_fraction(const char **s, uint64_t *ret)
{
	uint64_t billionths = 0;
	unsigned int n = 0;

	*ret = 0;
	if (**s != '.')
		return 0;
	for ((*s)++; is_digit(**s); (*s)++) {
		if (++n > 9)
			return -EINVAL;
		billionths = billionths * 10 + (uint64_t)(**s - '0');
	}
	if (n == 0)
		return -EINVAL;
	for (; n < 9; n++)
		billionths *= 10;
	*ret = billionths;
	return 0;
}

/* whole.billionths * unit, rounded down. */
static int scale_decimal(uint64_t whole, uint64_t billionths, uint64_t unit, uint64_t *ret)
{
	unsigned __int128 value = (unsigned __int128)whole * unit +
				  (unsigned __int128)billionths * unit / 1000000000u;

	if (value > UINT64_MAX)
		return -ERANGE;
	*ret = (uint64_t)value;
	return 0;
}

static int take_decimal(const char **s, uint64_t *ret_whole, uint64_t *ret_billionths)
{
	int r = take_digits(s, ret_whole);

	return r ? r : take_fraction(s, ret_billionths);
}

int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	uint64_t value;
	int r = take_digits(&s, &value);

	if (r == -ERANGE) {
		while (is_digit(*s))
			s++;
	}
	if (*s)
		return -EINVAL;
	if (r)
		return r;
	if (value < min || value > max)
		return -ERANGE;
	*ret = value;
	return 0;
}

int parse_seconds(const char *s, uint64_t min_ns, uint64_t max_ns, uint64_t *ret_ns)
{
	uint64_t whole;
	uint64_t billionths;
	uint64_t ns;
	int r = take_decimal(&s, &whole, &billionths);

	if (r)
		return r;
	if (*s)
		return -EINVAL;
	r = scale_decimal(whole, billionths, 1000000000u, &ns);
	if (r)
		return r;
	if (ns < min_ns || ns > max_ns)
		return -ERANGE;
	*ret_ns = ns;
	return 0;
}

static const struct {
	const char *name;
	uint64_t bytes;
} size_units[] = {
	{"", 1},
	{"B", 1},
	{"K", 1ull << 10},
	{"M", 1ull << 20},
	{"G", 1ull << 30},
	{"T", 1ull << 40},
	{"KiB", 1ull << 10},
	{"MiB", 1ull << 20},
	{"GiB", 1ull << 30},
	{"TiB", 1ull << 40},
	{"KB", 1000ull},
	{"MB", 1000000ull},
	{"GB", 1000000000ull},
	{"TB", 1000000000000ull},
};

int parse_size(const char *s, uint64_t *ret)
{
	uint64_t whole;
	uint64_t billionths;
	int r = take_decimal(&s, &whole, &billionths);

	if (r)
		return r;
	if (*s == ' ')
		s++;
	for (size_t i = 0; i < sizeof(size_units) / sizeof(size_units[0]); i++) {
		if (strcasecmp(s, size_units[i].name) != 0)
			continue;
		if (size_units[i].bytes == 1 && billionths)
			return -EINVAL; /* half a byte */
		return scale_decimal(whole, billionths, size_units[i].bytes, ret);
	}
	return -EINVAL;
}

int parse_size_or_percent(const char *s, uint64_t total, uint64_t *ret)
{
	const char *at = s;
	uint64_t whole;
	uint64_t billionths;
	int r = take_decimal(&at, &whole, &billionths);

	if (r)
		return r;
	if (*at == ' ')
		at++;
	if (strcmp(at, "%") != 0)
		return parse_size(s, ret);
	if (whole > 100 || (whole == 100 && billionths))
		return -ERANGE;
	*ret = (uint64_t)(((unsigned __int128)whole * 1000000000u + billionths) * total /
			  100000000000u);
	return 0;
}

int parse_bool(const char *s, bool *ret)
{
	static const char *const names[] = {"0", "1", "no", "yes", "false", "true", "off", "on"};
	unsigned int i;
	int r = parse_enum(s, names, sizeof(names) / sizeof(names[0]), &i);

	if (r)
		return r;
	*ret = i % 2;
	return 0;
}

int parse_enum(const char *s, const char *const *names, size_t n, unsigned int *ret)
{
	for (size_t i = 0; i < n; i++) {
		if (strcasecmp(s, names[i]) != 0)
			continue;
		*ret = (unsigned int)i;
		return 0;
	}
	return -EINVAL;
}

char *format_size(uint64_t bytes, char *buf, size_t size)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	unsigned int unit = 0;
	uint64_t tenths;

	if (bytes < 1024) {
		(void)snprintf(buf, size, "%u B", (unsigned int)bytes);
		return buf;
	}
	while (unit < 5 && bytes >> (10 * (unit + 2)))
		unit++;
	/* Rounding up may reach the next unit: 1023.97 KiB is 1.0 MiB. */
	for (;;) {
		uint64_t one = 1ull << (10 * (unit + 1));

		tenths = bytes / one * 10 + (bytes % one * 10 + one / 2) / one;
		if (tenths < 10240 || unit == 5)
			break;
		unit++;
	}
	(void)snprintf(buf, size, "%u.%u %s", (unsigned int)(tenths / 10),
		       (unsigned int)(tenths % 10), units[unit]);
	return buf;
}
