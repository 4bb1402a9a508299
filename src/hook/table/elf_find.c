/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/table/elf_find.h"

#include "hook/table/elf_object.h"
#include "hook/table/elf_walk.h"
#include "hook/table/name.h"

#include <link.h>
#include <stddef.h>

struct elf_search {
	const char *soname; /* only the object of this name; NULL: any */
	const void *addr;   /* only after the object that contains it; NULL: from the first */
	const char *name;   /* NULL: finding the object is enough */
	bool is_own;        /* only the object that contains addr */
	bool is_other;      /* all but the object that contains addr */
	bool has_passed;    /* the object that contains addr has been seen */
	bool is_found;      /* the object of this soname has been seen */
	void *def;
};

static bool search_skips(struct elf_search *search, const struct elf_object *object)
{
	bool is_here;

	if (!search->addr || search->has_passed)
		return false;
	is_here = elf_object_contains(object, search->addr);
	if (search->is_own || search->is_other)
		return is_here == search->is_other;
	search->has_passed = is_here;
	return true;
}

static int elf_on_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct elf_search *search = arg;
	struct elf_object object;

	(void)size;
	if (!elf_object_read(info, &object) || search_skips(search, &object))
		return 0;
	if (search->soname && !name_is(object.soname, search->soname))
		return 0;

	search->is_found = true;
	search->def = search->name ? elf_object_find(&object, search->name) : NULL;
	return search->soname || search->is_own || search->def;
}

static void *elf_search(struct elf_search search)
{
	(void)elf_walk(elf_on_object, &search);
	return search.def;
}

bool elf_find_loaded(const char *soname)
{
	struct elf_search search = {.soname = soname};

	(void)elf_walk(elf_on_object, &search);
	return search.is_found;
}

void *elf_find_in(const char *soname, const char *name)
{
	return elf_search((struct elf_search){.soname = soname, .name = name});
}

void *elf_find_after(const void *addr, const char *name)
{
	return elf_search((struct elf_search){.addr = addr, .name = name});
}

void *elf_find_at(const void *addr, const char *name)
{
	return elf_search((struct elf_search){.addr = addr, .name = name, .is_own = true});
}

void *elf_find_beside(const void *addr, const char *name)
{
	return elf_search((struct elf_search){.addr = addr, .name = name, .is_other = true});
}
