/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_PLUGIN_H
#define NVS_APPS_PLUGIN_H

/*
 * A library that works on the GPU by itself, for a program that opens it. It is built so that it
 * links the driver, or finds it by dlopen() and dlsym(). Results: 0, an error of the driver, or one
 * of the enum.
 */

#include <stddef.h>

enum { PLUGIN_E_WRONG = -1, PLUGIN_E_NO_DRIVER = -2 };

/* Makes the primary context of device 0 current. driver: what to open where it is not linked. */
typedef int plugin_begin_fn(const char *driver);
typedef int plugin_see_fn(size_t *ret_free, size_t *ret_total);
typedef int plugin_alloc_fn(unsigned long long *ret_ptr, size_t size);
typedef int plugin_fill_fn(unsigned long long ptr, size_t size, int value);
/* Checks that each byte is before, then makes it value. */
typedef int plugin_work_fn(unsigned long long ptr, size_t size, int before, int value);
typedef int plugin_name_fn(char *ret_name, int size); /* of the device */

#pragma GCC visibility push(default)
plugin_begin_fn plugin_begin;
plugin_see_fn plugin_see;
plugin_alloc_fn plugin_alloc;
plugin_fill_fn plugin_fill;
plugin_work_fn plugin_work;
plugin_name_fn plugin_name;
#pragma GCC visibility pop

#endif
