/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/table/resolve.h"

#include "hook/table/elf_find.h"
#include "hook/table/hook_nvml.h"
#include "hook/table/hook_table.h"
#include "hook/table/load.h"
#include "hook/table/name.h"
#include "hook/table/reach.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ioctl.h>

typedef void *(*resolve_dlsym_fn)(void *handle, const char *name);
typedef void *(*resolve_dlopen_fn)(const char *file, int mode);
typedef void *(*resolve_dlmopen_fn)(Lmid_t space, const char *file, int mode);
typedef void *(*resolve_dlvsym_fn)(void *handle, const char *name, const char *version);

/* One look-up; version NULL: by dlsym(). */
struct resolve_query {
	void *handle;
	const char *name;
	const char *version;
	const void *caller;
};

void *resolve_in_libc(const char *name)
{
	void *fn = elf_find_in("libc.so.6", name);

	return fn ? fn : elf_find_in("libdl.so.2", name);
}

void *resolve_symbol(void *handle, const char *name)
{
	static resolve_dlsym_fn real;
	resolve_dlsym_fn fn = __atomic_load_n(&real, __ATOMIC_RELAXED);

	if (!fn) {
		fn = (resolve_dlsym_fn)resolve_in_libc("dlsym");
		__atomic_store_n(&real, fn, __ATOMIC_RELAXED);
	}

	return fn ? fn(handle, name) : NULL;
}

static void *resolve_nothing(void)
{
	return NULL;
}

/* The function that the program would call without us. Another library may interpose it, too. */
static void *resolve_next(void **cache, const char *name)
{
	void *fn = __atomic_load_n(cache, __ATOMIC_RELAXED);

	if (fn)
		return fn;

	fn = elf_find_after((const void *)resolve_next, name);
	if (!fn) /* we were loaded after the C library */
		fn = resolve_in_libc(name);
	if (!fn)
		return (void *)resolve_nothing;

	__atomic_store_n(cache, fn, __ATOMIC_RELAXED);
	return fn;
}

static void *next_dlsym(void)
{
	static void *cache;

	return resolve_next(&cache, "dlsym");
}

static void *next_dlvsym(void)
{
	static void *cache;

	return resolve_next(&cache, "dlvsym");
}

static void *next_dlopen(void)
{
	static void *cache;

	return resolve_next(&cache, "dlopen");
}

static void *next_dlmopen(void)
{
	static void *cache;

	return resolve_next(&cache, "dlmopen");
}

bool resolve_find(const char *name, struct resolve_wrap *ret_wrap)
{
	const struct hook *hook = hook_table_find(name);

	if (hook) {
		ret_wrap->ours = hook->fn;
		ret_wrap->real = load_driver_if_present() ? *hook->real : NULL;
		return true;
	}

	if (name_is(name, "ioctl")) {
		ret_wrap->ours = (void *)ioctl;
		ret_wrap->real = resolve_in_libc(name);
		return true;
	}

	return hook_nvml_find(name, &ret_wrap->ours, &ret_wrap->real);
}

static void *resolve_ask(const struct resolve_query *query, void *handle)
{
	if (query->version)
		return ((resolve_dlvsym_fn)next_dlvsym())(handle, query->name, query->version);

	return ((resolve_dlsym_fn)next_dlsym())(handle, query->name);
}

/*
 * A name of the driver's that we do not wrap. Only a handle can name a second copy of the driver;
 * the other look-ups depend on the caller.
 */
static struct resolve_answer resolve_plain(const struct resolve_query *query, void *jump)
{
	if (query->handle == RTLD_NEXT || query->handle == RTLD_DEFAULT || query->name[1] != 'u')
		return (struct resolve_answer){.jump = jump};
	return (struct resolve_answer){
		.value = reach_one_driver(query->name, resolve_ask(query, query->handle)),
	};
}

/*
 * The real look-up comes last, so that dlerror() says afterwards what it would say without us.
 */
static struct resolve_answer resolve_wrapped(const struct resolve_query *query, void *jump)
{
	struct resolve_wrap wrap;
	void *value;

	if (!resolve_find(query->name, &wrap))
		return resolve_plain(query, jump);

	if (query->handle == RTLD_NEXT) {
		/* A call of dlsym() from here would search behind us, not behind the caller. */
		value = elf_find_after(query->caller, query->name);
		if (wrap.real && value == wrap.real)
			return (struct resolve_answer){.value = wrap.ours};
		if (wrap.real || value != wrap.ours)
			return (struct resolve_answer){.jump = jump};
	} else {
		value = resolve_ask(query, query->handle);
		if (wrap.real && value == wrap.real)
			value = wrap.ours;
		else if (query->name[1] == 'u')
			value = reach_one_driver(query->name, value);
	}

	/*
	 * The look-up found our own export, but the driver is not there. A program that checks
	 * whether it has CUDA must not find it because of us.
	 */
	if (!wrap.real && value == wrap.ours)
		value = resolve_ask(query, RTLD_NEXT);

	return (struct resolve_answer){.value = value};
}

/*
 * A library that asks for the next ioctl() interposes it, too. If it is behind us, it must not get
 * ours, which would call it again. If it is before us, it finds ours anyway.
 */
static bool resolve_may_be_ours(const void *handle, const char *name)
{
	return name && ((name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v') ||
			(handle != RTLD_NEXT && name_is(name, "ioctl")));
}

struct resolve_answer resolve_dlsym(void *handle, const char *name, const void *caller)
{
	struct resolve_query query = {.handle = handle, .name = name, .caller = caller};

	reach_look_up(handle);
	if (!resolve_may_be_ours(handle, name))
		return (struct resolve_answer){.jump = next_dlsym()};

	return resolve_wrapped(&query, next_dlsym());
}

struct resolve_answer resolve_dlvsym(void *handle, const char *name, const char *version,
				     const void *caller)
{
	struct resolve_query query = {
		.handle = handle,
		.name = name,
		.version = version,
		.caller = caller,
	};

	reach_look_up(handle);
	if (!resolve_may_be_ours(handle, name) || !version)
		return (struct resolve_answer){.jump = next_dlvsym()};

	return resolve_wrapped(&query, next_dlvsym());
}

/*
 * The caller decides where a file without a slash is searched, what $ORIGIN is, and in which
 * namespace an open ends. Where one of these matters we only jump.
 */
static bool resolve_is_alone(const char *file, const void *caller)
{
	return name_has(file, '/') && !name_has(file, '$') && reach_is_here(caller);
}

/*
 * The flag stays: without it a library that brings its own copies of the program's libraries would
 * get the program's.
 */
struct resolve_answer resolve_dlopen(const char *file, int mode, const void *caller)
{
	struct resolve_answer answer = {.jump = next_dlopen()};

	if (!file || (!(mode & RTLD_DEEPBIND) && !reach_is_behind()))
		return answer;
	reach_expect();
	if (!resolve_is_alone(file, caller))
		return answer;
	reach_begin();
	answer.value = ((resolve_dlopen_fn)answer.jump)(file, mode);
	answer.jump = NULL;
	reach_end(answer.value);
	return answer;
}

struct resolve_answer resolve_dlmopen(Lmid_t space, const char *file, int mode, const void *caller)
{
	struct resolve_answer answer = {.jump = next_dlmopen()};

	if (!file || (space == LM_ID_BASE && !(mode & RTLD_DEEPBIND) && !reach_is_behind()))
		return answer;
	reach_expect();
	if (!resolve_is_alone(file, caller))
		return answer;
	reach_begin();
	answer.value = ((resolve_dlmopen_fn)answer.jump)(space, file, mode);
	answer.jump = NULL;
	reach_end(answer.value);
	return answer;
}

void resolve_proc_address(const char *name, void **pfn)
{
	const struct hook *hook;

	if (!name || !pfn || !*pfn)
		return;

	hook = hook_table_find_real(name, *pfn);
	if (hook)
		*pfn = hook->fn;
}
