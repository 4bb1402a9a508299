/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/table/reach.h"

#include "hook/table/bypass.h"
#include "hook/table/elf_find.h"
#include "hook/table/elf_object.h"
#include "hook/table/elf_walk.h"
#include "hook/table/hook_table.h"
#include "hook/table/load.h"
#include "hook/table/name.h"
#include "hook/table/resolve.h"
#include "util/clock.h"

#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <stdlib.h>

#define LIBCUDA "libcuda.so.1"

/* An open whose end we do not see takes so long, at most, until the program looks something up. */
#define OPENING_NS CLOCK_NS_PER_SEC

static struct {
	bool is_expected;       /* atomic; some open was one of those that are caught */
	unsigned int n_opening; /* atomic; such opens that are under way, and whose end we see */
	uint64_t expected_ns;   /* atomic; the last one began then */
	bool is_behind;         /* the driver comes before us; set before the program begins */
	const void *handle;     /* atomic; the last one looked up, with so many objects loaded */
	unsigned long long n_loaded;    /* atomic; of handle */
	unsigned long long n_looked_at; /* the agent's */
} reach;

/* The library that was opened and what it needs, from the loader's list of its namespace. */
struct reach_set {
	const struct link_map *first; /* of the namespace */
	const struct link_map *opened;
	struct elf_object *objects;
	size_t n, n_max;
	struct elf_object driver; /* of that namespace */
	bool has_driver;
	bool is_here; /* it is our namespace */
	bool is_whole;
};

/* Parts of the C library call each other, and never the driver. */
static bool is_of_libc(const struct elf_object *object)
{
	static const char *const sonames[] = {"libc.so.6", "libdl.so.2", "libpthread.so.0"};

	for (size_t i = 0; i < sizeof(sonames) / sizeof(sonames[0]); i++) {
		if (name_is(object->soname, sonames[i]))
			return true;
	}
	return name_begins_with(object->soname, "ld-linux");
}

static bool is_driver(const struct elf_object *object)
{
	return name_is(object->soname, LIBCUDA);
}

static bool is_one_of(const char *name, const char *const *names)
{
	for (; *names; names++) {
		if (name_is(name, *names))
			return true;
	}
	return false;
}

/* Functions of the C library that we export, by which a caller finds the driver. */
static const char *const finders[] = {"dlsym", "dlvsym", "dlopen", "dlmopen", NULL};

/*
 * In our own namespace an import becomes what it would be without RTLD_DEEPBIND. NULL: it stays as
 * it is. One that is not bound yet is taken for the first definition that is not ours.
 */
static void *replace_here(const struct elf_object *object, const struct elf_import *import)
{
	struct resolve_wrap wrap;
	const void *value = import->value;

	if (is_driver(object) && !name_is(import->name, "ioctl"))
		return NULL;
	if (is_one_of(import->name, finders))
		wrap = (struct resolve_wrap){
			.ours = elf_find_at((const void *)replace_here, import->name),
			.real = resolve_in_libc(import->name),
		};
	else if (!resolve_find(import->name, &wrap))
		return NULL;
	if (!value)
		value = elf_find_beside((const void *)replace_here, import->name);
	return wrap.real && value == wrap.real ? wrap.ours : NULL;
}

/*
 * Another namespace has a C library of its own, whose dlerror() would not know of an error of our
 * dlsym(). So these functions all come from one C library.
 */
static void *replace_elsewhere(const struct reach_set *set, const struct elf_import *import)
{
	static const char *const partners[] = {"dlerror", "dlclose", "dlinfo", NULL};
	const struct hook *hook;
	void *def;

	if (is_one_of(import->name, finders))
		return elf_find_at((const void *)replace_elsewhere, import->name);
	if (is_one_of(import->name, partners))
		return resolve_in_libc(import->name);
	def = set->has_driver ? elf_object_find(&set->driver, import->name) : NULL;
	if (!def || (import->value && import->value != def))
		return NULL;
	hook = hook_table_find(import->name);
	return hook ? hook->fn : elf_find_in(LIBCUDA, import->name);
}

static bool set_on_import(const struct elf_object *object, const struct elf_import *import,
			  void *arg)
{
	const struct reach_set *set = arg;
	void *fn = set->is_here ? replace_here(object, import) : replace_elsewhere(set, import);

	if (fn && fn != import->value && !elf_object_set_import(object, import->slot, fn))
		bypass_note(object->path, import->name);
	return false;
}

static bool set_needs(const struct reach_set *set, const struct elf_object *object)
{
	for (size_t i = 0; i < set->n; i++) {
		if (elf_object_needs(&set->objects[i], object->soname))
			return true;
	}
	return false;
}

static bool set_has(const struct reach_set *set, const struct elf_object *object)
{
	for (size_t i = 0; i < set->n; i++) {
		if (set->objects[i].base == object->base)
			return true;
	}
	return false;
}

static bool set_add(struct reach_set *set, const struct elf_object *object)
{
	struct elf_object *objects = set->objects;

	if (set->n == set->n_max) {
		objects = realloc(objects, (set->n_max * 2 + 16) * sizeof(*objects));
		if (!objects) {
			set->is_whole = false;
			return false;
		}
		set->objects = objects;
		set->n_max = set->n_max * 2 + 16;
	}
	set->objects[set->n++] = *object;
	return true;
}

/* Adds what the set's objects need; true: some were added, and may need more. */
static bool set_grow(struct reach_set *set)
{
	struct elf_object object;
	size_t before = set->n;

	for (const struct link_map *map = set->first; map; map = map->l_next) {
		if (elf_object_read_map(map, &object) && !set_has(set, &object) &&
		    set_needs(set, &object) && !set_add(set, &object))
			return false;
	}
	return set->n > before;
}

/* The lock of dl_iterate_phdr() keeps the lists of all namespaces as they are. */
static int set_collect(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct reach_set *set = arg;
	struct elf_object object;

	(void)info;
	(void)size;
	for (set->first = set->opened; set->first->l_prev;)
		set->first = set->first->l_prev;
	for (const struct link_map *map = set->first; map; map = map->l_next) {
		if (!elf_object_read_map(map, &object))
			continue;
		if (elf_object_contains(&object, (const void *)set_collect))
			set->is_here = true;
		if (is_driver(&object) && !set->has_driver) {
			set->driver = object;
			set->has_driver = true;
		}
	}
	if (!elf_object_read_map(set->opened, &object))
		return 1; /* the program itself */
	if (set_add(set, &object)) {
		while (set_grow(set))
			;
	}
	return 1;
}

/*
 * The objects stay loaded while the program has the handle, so the lock is not needed for them.
 * With the lock nothing could be loaded.
 */
static void reach_set(struct reach_set *set)
{
	(void)elf_walk(set_collect, set);
	if (!set->is_whole || (set->has_driver && !load_driver()))
		bypass_note(set->objects ? set->objects[0].path : "", "the driver");
	for (size_t i = 0; i < set->n; i++) {
		const struct elf_object *object = &set->objects[i];

		if (!is_of_libc(object) && (set->is_here || !is_driver(object)) &&
		    !elf_object_contains(object, (const void *)set_collect))
			elf_object_imports(object, set_on_import, set);
	}
	free(set->objects);
}

/* A handle is the loader's entry of the object; <dlfcn.h> says so of RTLD_DI_LINKMAP. */
static void reach_opened(void *handle)
{
	int saved_errno = errno;
	struct reach_set set = {.opened = handle, .is_whole = true};

	__atomic_store_n(&reach.is_expected, true, __ATOMIC_RELAXED);
	reach_set(&set);
	errno = saved_errno;
}

bool reach_is_behind(void)
{
	return reach.is_behind;
}

void reach_expect(void)
{
	__atomic_store_n(&reach.expected_ns, clock_now_ns(), __ATOMIC_RELAXED);
	__atomic_store_n(&reach.is_expected, true, __ATOMIC_RELAXED);
}

void reach_begin(void)
{
	(void)__atomic_add_fetch(&reach.n_opening, 1, __ATOMIC_ACQ_REL);
}

void reach_end(void *handle)
{
	if (handle)
		reach_opened(handle);
	(void)__atomic_sub_fetch(&reach.n_opening, 1, __ATOMIC_ACQ_REL);
}

static int read_n_loaded(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	*(unsigned long long *)arg = info->dlpi_adds;
	return 1;
}

static unsigned long long count_loaded(void)
{
	unsigned long long n = 0;

	(void)elf_walk(read_n_loaded, &n);
	return n;
}

void reach_look_up(void *handle)
{
	unsigned long long n;

	if (!__atomic_load_n(&reach.is_expected, __ATOMIC_RELAXED) || handle == RTLD_DEFAULT ||
	    handle == RTLD_NEXT)
		return;
	n = count_loaded();
	if (__atomic_load_n(&reach.handle, __ATOMIC_RELAXED) == handle &&
	    __atomic_load_n(&reach.n_loaded, __ATOMIC_RELAXED) == n)
		return;
	reach_opened(handle);
	__atomic_store_n(&reach.n_loaded, n, __ATOMIC_RELAXED);
	__atomic_store_n(&reach.handle, handle, __ATOMIC_RELAXED);
}

struct reach_here {
	const void *addr;
	bool is_here;
};

static int here_on_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct reach_here *here = arg;
	struct elf_object object;

	(void)size;
	here->is_here = elf_object_read(info, &object) && elf_object_contains(&object, here->addr);
	return here->is_here;
}

bool reach_is_here(const void *addr)
{
	struct reach_here here = {.addr = addr};

	(void)elf_walk(here_on_object, &here);
	return here.is_here;
}

void *reach_one_driver(const char *name, void *value)
{
	const struct hook *hook;
	struct elf_object object;
	struct link_map *map;
	Dl_info info;
	void *ours;

	if (!value || !dladdr1(value, &info, (void **)&map, RTLD_DL_LINKMAP) || !map ||
	    !elf_object_read_map(map, &object) || !is_driver(&object) || !load_driver())
		return value;
	ours = elf_find_in(LIBCUDA, name);
	if (!ours || elf_object_contains(&object, ours))
		return value; /* it is the only one */
	hook = hook_table_find(name);
	return hook ? hook->fn : ours;
}

/* ---- noticing ----------------------------------------------------------------- */

/* The names are gone with their object, which stays only until the walk is over. */
static bool caller_on_import(const struct elf_object *object, const struct elf_import *import,
			     void *arg)
{
	const struct hook *hook = hook_table_find(import->name);

	(void)arg;
	if (!hook || !import->value || import->value != *hook->real)
		return false;
	bypass_note(object->path, import->name);
	return true;
}

static int caller_on_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct elf_object object;

	(void)size;
	if (elf_object_read(info, &object) && !is_driver(&object) &&
	    !elf_object_contains(&object, (const void *)caller_on_object))
		elf_object_imports(&object, caller_on_import, arg);
	return bypass_seen();
}

/* The loader has bound the imports of what is being opened, and we have not seen them yet. */
static bool is_opening(void)
{
	return __atomic_load_n(&reach.n_opening, __ATOMIC_ACQUIRE) ||
	       (__atomic_load_n(&reach.is_expected, __ATOMIC_RELAXED) &&
		clock_now_ns() - __atomic_load_n(&reach.expected_ns, __ATOMIC_RELAXED) <
			OPENING_NS);
}

bool reach_look(void)
{
	unsigned long long n;

	if (!bypass_seen() && is_opening())
		return false;
	n = count_loaded();

	/* A caller whose imports are bound at their first call shows when it has called. */
	if (bypass_seen() ||
	    (n == reach.n_looked_at && !__atomic_load_n(&reach.is_expected, __ATOMIC_RELAXED)))
		return bypass_seen();
	reach.n_looked_at = n;
	(void)elf_walk(caller_on_object, NULL);
	return bypass_seen();
}

/* ---- the driver in front of us ------------------------------------------------ */

static int front_on_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct reach_set *set = arg;
	struct elf_object object;

	(void)size;
	if (elf_object_read(info, &object))
		(void)set_add(set, &object);
	return 0;
}

/*
 * LD_PRELOAD may name the driver before us: then no import of the program is ours. When our
 * constructor runs, the loader has bound all objects. A library that is loaded later than the
 * C library was not preloaded; the program may have begun with CUDA, and stays without us.
 */
__attribute__((constructor)) static void reach_on_load(void)
{
	struct reach_set set = {.is_here = true, .is_whole = true};
	const void *first;

	if (!elf_find_loaded(LIBCUDA) || !elf_find_after((const void *)reach_on_load, "dlsym"))
		return;
	first = elf_find_beside((const void *)reach_on_load, "cuInit");
	if (!first || first != elf_find_in(LIBCUDA, "cuInit") ||
	    elf_find_after((const void *)reach_on_load, "cuInit"))
		return;
	reach.is_behind = true;
	(void)elf_walk(front_on_object, &set);
	if (load_driver_if_present()) {
		for (size_t i = 0; i < set.n; i++) {
			if (!is_of_libc(&set.objects[i]) &&
			    !elf_object_contains(&set.objects[i], (const void *)reach_on_load))
				elf_object_imports(&set.objects[i], set_on_import, &set);
		}
	}
	free(set.objects);
}
