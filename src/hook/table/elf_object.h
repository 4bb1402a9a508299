/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_ELF_OBJECT_H
#define NVS_HOOK_ELF_OBJECT_H

/*
 * A loaded object: its symbols, its segments, and its imports, read where the loader has mapped
 * them. Nothing here calls the loader, so a callback of dl_iterate_phdr() may use it.
 * elf_object_find() calls nothing at all.
 *
 * Threading: any thread, while the object stays loaded.
 */

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elf_object {
	ElfW(Addr) base;
	const ElfW(Phdr) * segments;
	size_t n_segments;
	const ElfW(Dyn) * dynamic;
	const ElfW(Sym) * symbols;
	const char *strings;
	const uint32_t *gnu_hash;
	const ElfW(Word) * hash;
	const char *soname; /* "": none */
	const char *path;   /* "": the program */
	struct {
		const ElfW(Rela) * first;
		size_t n;
	} relocations[2];
};

/* A name that an object takes from another one, and the word that says where it is. */
struct elf_import {
	const char *name;
	void **slot;
	const void
		*value; /* what the word says now; NULL: the loader looks it up at the first call */
};

typedef bool elf_import_fn(const struct elf_object *object, const struct elf_import *import,
			   void *arg); /* true: no more imports */

/* false: it has no symbols, and *ret_object is not to be used. */
bool elf_object_read(const struct dl_phdr_info *info, struct elf_object *ret_object);

/* The same by the loader's entry, with its symbols and imports alone, and no segments. */
bool elf_object_read_symbols(const struct link_map *map, struct elf_object *ret_object);

/* The same with its segments, in any namespace. false, too, where its header is not mapped. */
bool elf_object_read_map(const struct link_map *map, struct elf_object *ret_object);

bool elf_object_contains(const struct elf_object *object, const void *addr);

/* The definition of a function; NULL: it has none. */
void *elf_object_find(const struct elf_object *object, const char *name);

/* It names the object of this soname as one that it needs. */
bool elf_object_needs(const struct elf_object *object, const char *soname);

void elf_object_imports(const struct elf_object *object, elf_import_fn *visit, void *arg);

/*
 * Makes the import fn. The loader has done with the object: it has made read-only what it makes
 * read-only. false: the memory cannot be written. Keeps errno.
 */
bool elf_object_set_import(const struct elf_object *object, void **slot, void *fn);

void elf_object_after_fork_child(void);

#endif
