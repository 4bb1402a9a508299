/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/table/elf_find.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct elf_tables {
	const ElfW(Sym) * symbols;
	const char *strings;
	const uint32_t *gnu_hash;
	const ElfW(Word) * hash;
	const char *soname;
};

struct elf_search {
	const char *soname; /* only the object of this name; NULL: any */
	const void *addr;   /* only after the object that contains it; NULL: from the first */
	const char *name;   /* NULL: finding the object is enough */
	bool has_passed;    /* the object that contains addr has been seen */
	bool is_found;      /* the object of this soname has been seen */
	void *def;
};

/* glibc relocates the addresses in a dynamic section in place, but not those of the vDSO. */
static const void *elf_address(const struct dl_phdr_info *info, ElfW(Addr) value)
{
	return (const void *)(value < info->dlpi_addr ? info->dlpi_addr + value : value);
}

static bool elf_read_tables(const struct dl_phdr_info *info, struct elf_tables *ret_tables)
{
	struct elf_tables tables = {.soname = ""};
	const ElfW(Dyn) *dynamic = NULL;
	size_t soname = 0;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	}
	if (!dynamic)
		return false;

	for (; dynamic->d_tag != DT_NULL; dynamic++) {
		const void *address = elf_address(info, dynamic->d_un.d_ptr);

		if (dynamic->d_tag == DT_SYMTAB)
			tables.symbols = address;
		else if (dynamic->d_tag == DT_STRTAB)
			tables.strings = address;
		else if (dynamic->d_tag == DT_GNU_HASH)
			tables.gnu_hash = address;
		else if (dynamic->d_tag == DT_HASH)
			tables.hash = address;
		else if (dynamic->d_tag == DT_SONAME)
			soname = dynamic->d_un.d_val;
	}
	if (!tables.symbols || !tables.strings)
		return false;
	if (soname)
		tables.soname = tables.strings + soname;

	*ret_tables = tables;
	return true;
}

static bool elf_is_definition(const struct elf_tables *tables, uint32_t index, const char *name)
{
	const ElfW(Sym) *symbol = &tables->symbols[index];
	unsigned char type = symbol->st_info & 0xf;
	unsigned char bind = symbol->st_info >> 4;

	return symbol->st_shndx != SHN_UNDEF && symbol->st_value != 0 &&
	       (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE) &&
	       (bind == STB_GLOBAL || bind == STB_WEAK) &&
	       strcmp(tables->strings + symbol->st_name, name) == 0;
}

static uint32_t elf_lookup_gnu(const struct elf_tables *tables, const char *name)
{
	const uint32_t *table = tables->gnu_hash;
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

		if ((chain | 1) == (hash | 1) && elf_is_definition(tables, index, name))
			return index;
		if (chain & 1)
			return 0;
	}
}

static uint32_t elf_lookup(const struct elf_tables *tables, const char *name)
{
	if (tables->gnu_hash)
		return elf_lookup_gnu(tables, name);

	/* The second word of the old table counts the symbols. */
	for (uint32_t i = 1; tables->hash && i < tables->hash[1]; i++) {
		if (elf_is_definition(tables, i, name))
			return i;
	}

	return 0;
}

static bool elf_contains(const struct dl_phdr_info *info, const void *addr)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		ElfW(Addr) start = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type == PT_LOAD && (ElfW(Addr))addr - start < segment->p_memsz)
			return true;
	}

	return false;
}

static int elf_on_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct elf_search *search = arg;
	struct elf_tables tables;
	uint32_t index;

	(void)size;
	if (search->addr && !search->has_passed) {
		search->has_passed = elf_contains(info, search->addr);
		return 0;
	}
	if (!elf_read_tables(info, &tables))
		return 0;
	if (search->soname && strcmp(tables.soname, search->soname) != 0)
		return 0;

	search->is_found = true;
	index = search->name ? elf_lookup(&tables, search->name) : 0;
	if (index)
		search->def = (void *)(info->dlpi_addr + tables.symbols[index].st_value);
	return search->soname || index;
}

bool elf_find_loaded(const char *soname)
{
	struct elf_search search = {.soname = soname};

	(void)dl_iterate_phdr(elf_on_object, &search);
	return search.is_found;
}

void *elf_find_in(const char *soname, const char *name)
{
	struct elf_search search = {.soname = soname, .name = name};

	(void)dl_iterate_phdr(elf_on_object, &search);
	return search.def;
}

void *elf_find_after(const void *addr, const char *name)
{
	struct elf_search search = {.addr = addr, .name = name};

	(void)dl_iterate_phdr(elf_on_object, &search);
	return search.def;
}
