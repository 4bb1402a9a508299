/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The first look-up reads the loader's list of objects, which debuggers read, too. That takes no
 * lock, so all others go through the C library's function, which does.
 */

#include "hook/table/elf_walk.h"

#include "hook/table/elf_object.h"
#include "hook/table/name.h"

#include <stddef.h>

typedef int walk_fn(int (*on_object)(struct dl_phdr_info *info, size_t size, void *arg), void *arg);

static walk_fn *walk_find(void)
{
	struct elf_object object;

	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
		if (elf_object_read_symbols(map, &object) && name_is(object.soname, "libc.so.6"))
			return (walk_fn *)elf_object_find(&object, "dl_iterate_phdr");
	}
	return NULL;
}

int elf_walk(int (*on_object)(struct dl_phdr_info *info, size_t size, void *arg), void *arg)
{
	static walk_fn *cache;
	walk_fn *walk = __atomic_load_n(&cache, __ATOMIC_RELAXED);

	if (!walk) {
		walk = walk_find();
		__atomic_store_n(&cache, walk, __ATOMIC_RELAXED);
	}
	return walk ? walk(on_object, arg) : 0;
}
