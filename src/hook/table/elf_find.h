/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_ELF_FIND_H
#define NVS_HOOK_ELF_FIND_H

/*
 * Finds the loaded object that defines a name, in the objects' own symbol tables. dlsym() cannot do
 * that for us: we stand in its place, and it would change dlerror().
 *
 * Objects come in the order in which they were loaded. For those that were loaded at the start,
 * that is the order of symbol look-up. Threading: any thread (elf_walk.h).
 */

#include <stdbool.h>

/* An object with this soname is in the process. */
bool elf_find_loaded(const char *soname);

/* The definition of name in the object with this soname; NULL if none. */
void *elf_find_in(const char *soname, const char *name);

/*
 * The first definition of name in the objects after the one that contains addr; NULL if
 * none, or if addr lies in no object.
 */
void *elf_find_after(const void *addr, const char *name);

/* The definition of name in the object that contains addr; the first one in any other object. */
void *elf_find_at(const void *addr, const char *name);
void *elf_find_beside(const void *addr, const char *name);

#endif
