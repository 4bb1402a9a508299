/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_ELF_WALK_H
#define NVS_HOOK_ELF_WALK_H

/*
 * All objects of our namespace, by the C library's own dl_iterate_phdr(), in whose place another
 * library may stand. Such a library, as the runtime of a sanitizer, looks its next one up by
 * dlsym(), which is ours, when it is not ready to be called itself.
 *
 * Threading: any thread (dl_iterate_phdr's lock). The first call comes before the program has a
 * second thread, or from our constructor, where the loader keeps its list as it is.
 */

#include <link.h>

/* As dl_iterate_phdr(). 0, and no object is visited, where the C library is not loaded yet. */
int elf_walk(int (*on_object)(struct dl_phdr_info *info, size_t size, void *arg), void *arg);

#endif
