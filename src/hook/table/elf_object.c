/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/table/elf_object.h"

#include "hook/base/hook_mutex.h"
#include "hook/table/name.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#define RELOCATION_SLOT R_X86_64_JUMP_SLOT
#define RELOCATION_DATA R_X86_64_GLOB_DAT
#define RELOCATION_WORD R_X86_64_64
#elif defined(__aarch64__)
#define RELOCATION_SLOT R_AARCH64_JUMP_SLOT
#define RELOCATION_DATA R_AARCH64_GLOB_DAT
#define RELOCATION_WORD R_AARCH64_ABS64
#else
#error "the relocations of this processor are not known"
#endif

/* Two threads may write to one page. */
static struct hook_mutex page_lock = HOOK_MUTEX(HOOK_LOCK_IMPORTS);

/* glibc relocates the addresses in a dynamic section in place, but not those of the vDSO. */
static const void *dynamic_address(const struct elf_object *object, ElfW(Addr) value)
{
	return (const void *)(value < object->base ? object->base + value : value);
}

static void read_entry(struct elf_object *object, const ElfW(Dyn) * entry)
{
	const void *address = dynamic_address(object, entry->d_un.d_ptr);

	switch (entry->d_tag) {
	case DT_SYMTAB:
		object->symbols = address;
		break;
	case DT_STRTAB:
		object->strings = address;
		break;
	case DT_GNU_HASH:
		object->gnu_hash = address;
		break;
	case DT_HASH:
		object->hash = address;
		break;
	case DT_RELA:
		object->relocations[0].first = address;
		break;
	case DT_RELASZ:
		object->relocations[0].n = entry->d_un.d_val / sizeof(ElfW(Rela));
		break;
	case DT_JMPREL: /* of the same form, on the processors above */
		object->relocations[1].first = address;
		break;
	case DT_PLTRELSZ:
		object->relocations[1].n = entry->d_un.d_val / sizeof(ElfW(Rela));
		break;
	default:
		break;
	}
}

/* Base, path and dynamic section are there; reads what the dynamic section says. */
static bool read_dynamic(struct elf_object *object)
{
	if (!object->dynamic)
		return false;
	for (const ElfW(Dyn) *entry = object->dynamic; entry->d_tag != DT_NULL; entry++)
		read_entry(object, entry);
	if (!object->symbols || !object->strings)
		return false;
	object->soname = "";
	for (const ElfW(Dyn) *entry = object->dynamic; entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_SONAME)
			object->soname = object->strings + entry->d_un.d_val;
	}
	return true;
}

bool elf_object_read(const struct dl_phdr_info *info, struct elf_object *ret_object)
{
	*ret_object = (struct elf_object){
		.base = info->dlpi_addr,
		.segments = info->dlpi_phdr,
		.n_segments = info->dlpi_phnum,
		.path = info->dlpi_name ? info->dlpi_name : "",
	};
	for (size_t i = 0; i < ret_object->n_segments; i++) {
		const ElfW(Phdr) *segment = &ret_object->segments[i];

		if (segment->p_type == PT_DYNAMIC)
			ret_object->dynamic = (const void *)(ret_object->base + segment->p_vaddr);
	}
	return read_dynamic(ret_object);
}

bool elf_object_read_symbols(const struct link_map *map, struct elf_object *ret_object)
{
	*ret_object = (struct elf_object){
		.base = map->l_addr,
		.dynamic = map->l_ld,
		.path = map->l_name ? map->l_name : "",
	};
	return read_dynamic(ret_object);
}

/* A library begins with its header, at the address that its other addresses count from. */
bool elf_object_read_map(const struct link_map *map, struct elf_object *ret_object)
{
	const ElfW(Ehdr) *header = (const void *)map->l_addr;
	long page = sysconf(_SC_PAGESIZE);
	struct dl_phdr_info info = {.dlpi_addr = map->l_addr, .dlpi_name = map->l_name};
	int saved_errno = errno;
	unsigned char is_in;
	bool is_mapped;

	if (!map->l_addr || map->l_addr % (ElfW(Addr))page)
		return false;
	is_mapped = mincore((void *)map->l_addr, (size_t)page, &is_in) == 0;
	errno = saved_errno;
	if (!is_mapped || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
		return false;
	info.dlpi_phdr = (const void *)(map->l_addr + header->e_phoff);
	info.dlpi_phnum = header->e_phnum;
	return elf_object_read(&info, ret_object);
}

bool elf_object_contains(const struct elf_object *object, const void *addr)
{
	for (size_t i = 0; i < object->n_segments; i++) {
		const ElfW(Phdr) *segment = &object->segments[i];
		ElfW(Addr) start = object->base + segment->p_vaddr;

		if (segment->p_type == PT_LOAD && (ElfW(Addr))addr - start < segment->p_memsz)
			return true;
	}

	return false;
}

static bool is_definition(const struct elf_object *object, uint32_t index, const char *name)
{
	const ElfW(Sym) *symbol = &object->symbols[index];
	unsigned char type = symbol->st_info & 0xf;
	unsigned char bind = symbol->st_info >> 4;

	return symbol->st_shndx != SHN_UNDEF && symbol->st_value != 0 &&
	       (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE) &&
	       (bind == STB_GLOBAL || bind == STB_WEAK) &&
	       name_is(object->strings + symbol->st_name, name);
}

static uint32_t lookup_gnu(const struct elf_object *object, const char *name)
{
	const uint32_t *table = object->gnu_hash;
	uint32_t n_buckets = table[0], first = table[1], n_bloom = table[2];
	const uint32_t *buckets = &table[4 + n_bloom * (sizeof(ElfW(Addr)) / sizeof(uint32_t))];
	const uint32_t *chains = buckets + n_buckets;
	uint32_t hash = 5381;
	uint32_t index;

	for (const char *c = name; *c; c++)
		hash = hash * 33 + (unsigned char)*c;

	index = n_buckets ? buckets[hash % n_buckets] : 0;
	if (index < first || index == 0)
		return 0;
	for (;; index++) {
		uint32_t chain = chains[index - first];

		if ((chain | 1) == (hash | 1) && is_definition(object, index, name))
			return index;
		if (chain & 1)
			return 0;
	}
}

static uint32_t lookup(const struct elf_object *object, const char *name)
{
	if (object->gnu_hash)
		return lookup_gnu(object, name);

	/* The second word of the old table counts the symbols. */
	for (uint32_t i = 1; object->hash && i < object->hash[1]; i++) {
		if (is_definition(object, i, name))
			return i;
	}

	return 0;
}

void *elf_object_find(const struct elf_object *object, const char *name)
{
	uint32_t index = lookup(object, name);

	return index ? (void *)(object->base + object->symbols[index].st_value) : NULL;
}

bool elf_object_needs(const struct elf_object *object, const char *soname)
{
	for (const ElfW(Dyn) *entry = object->dynamic; entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_NEEDED &&
		    name_is(object->strings + entry->d_un.d_val, soname))
			return true;
	}
	return false;
}

/* A slot that is not bound yet points back into its object, to the code that binds it. */
static bool import_read(const struct elf_object *object, const ElfW(Rela) * relocation,
			struct elf_import *ret_import)
{
	const ElfW(Sym) *symbol = &object->symbols[ELF64_R_SYM(relocation->r_info)];
	uint32_t type = (uint32_t)ELF64_R_TYPE(relocation->r_info);

	if (type != RELOCATION_SLOT && type != RELOCATION_DATA &&
	    (type != RELOCATION_WORD || relocation->r_addend))
		return false;
	if (symbol->st_shndx != SHN_UNDEF || !symbol->st_name)
		return false;

	ret_import->name = object->strings + symbol->st_name;
	ret_import->slot = (void **)(object->base + relocation->r_offset);
	ret_import->value = __atomic_load_n(ret_import->slot, __ATOMIC_RELAXED);
	if (type == RELOCATION_SLOT && elf_object_contains(object, ret_import->value))
		ret_import->value = NULL;
	return ret_import->value || type == RELOCATION_SLOT; /* else weak, and defined nowhere */
}

void elf_object_imports(const struct elf_object *object, elf_import_fn *visit, void *arg)
{
	struct elf_import import;

	for (size_t t = 0; t < 2; t++) {
		for (size_t i = 0; i < object->relocations[t].n; i++) {
			if (import_read(object, &object->relocations[t].first[i], &import) &&
			    visit(object, &import, arg))
				return;
		}
	}
}

/* The loader makes these pages read-only when it has bound them; it rounds as here. */
static bool is_read_only(const struct elf_object *object, ElfW(Addr) addr, ElfW(Addr) page)
{
	for (size_t i = 0; i < object->n_segments; i++) {
		const ElfW(Phdr) *segment = &object->segments[i];
		ElfW(Addr) start = object->base + segment->p_vaddr;

		if (segment->p_type == PT_GNU_RELRO && addr >= (start & ~(page - 1)) &&
		    addr < ((start + segment->p_memsz) & ~(page - 1)))
			return true;
	}
	return false;
}

static bool is_writable(const struct elf_object *object, ElfW(Addr) addr)
{
	for (size_t i = 0; i < object->n_segments; i++) {
		const ElfW(Phdr) *segment = &object->segments[i];

		if (segment->p_type == PT_LOAD && segment->p_flags & PF_W &&
		    addr - (object->base + segment->p_vaddr) < segment->p_memsz)
			return true;
	}
	return false;
}

bool elf_object_set_import(const struct elf_object *object, void **slot, void *fn)
{
	ElfW(Addr) addr = (ElfW(Addr))slot, page = (ElfW(Addr))sysconf(_SC_PAGESIZE);
	void *start = (void *)(addr & ~(page - 1));
	bool is_fixed = is_read_only(object, addr, page), is_set = false;
	int saved_errno = errno;

	if (!is_writable(object, addr))
		return false;
	hook_lock(&page_lock);
	if (!is_fixed || mprotect(start, page, PROT_READ | PROT_WRITE) == 0) {
		__atomic_store_n(slot, fn, __ATOMIC_RELEASE);
		is_set = true;
		if (is_fixed)
			(void)mprotect(start, page, PROT_READ);
	}
	hook_unlock(&page_lock);
	errno = saved_errno;
	return is_set;
}

void elf_object_after_fork_child(void)
{
	hook_mutex_renew(&page_lock, HOOK_LOCK_IMPORTS);
}
