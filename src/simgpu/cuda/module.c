/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/module.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/hold.h"
#include "simgpu/cuda/run.h"
#include "simgpu/cuda/space.h"

#define MODULE_MAGIC 0x6e76732d6d6f6475ull

struct module_global {
	struct module_global *next;
	char name[128];
	uint64_t addr, size;
};

struct CUmod_st {
	uint64_t magic;
	struct CUmod_st *next; /* CUctx_st::modules */
	struct CUctx_st *ctx;
	struct CUfunc_st *functions;
	struct module_global *globals;
};

/* Copies the identifier at p to name. Returns the place behind it. */
static const char *take_name(const char *p, char *name, size_t size)
{
	size_t n = 0;

	while (isspace((unsigned char)*p))
		p++;
	while (isalnum((unsigned char)*p) || *p == '_' || *p == '$' || *p == '%') {
		if (n + 1 < size)
			name[n++] = *p;
		p++;
	}
	name[n] = '\0';
	return p;
}

static bool add_function(struct CUmod_st *module, const char *p)
{
	struct CUfunc_st *function = calloc(1, sizeof(*function));

	if (!function)
		return false;
	take_name(p, function->name, sizeof(function->name));
	function->module = module;
	function->kernel = kernel_find(function->name);
	function->next = module->functions;
	module->functions = function;
	return true;
}

/* Reads ".align 4 .b8 name[64];", ".u32 name;" and the like, perhaps after .visible or .extern. */
static bool add_global(struct CUmod_st *module, const char *p)
{
	struct module_global *global = calloc(1, sizeof(*global));
	uint64_t bits = 8, n = 1;
	char word[32];

	if (!global)
		return false;
	for (;;) {
		while (isspace((unsigned char)*p))
			p++;
		if (*p != '.')
			break;
		p = take_name(p + 1, word, sizeof(word));
		if (strcmp(word, "align") == 0)
			p = take_name(p, word, sizeof(word));
		else if (strpbrk(word, "0123456789"))
			bits = strtoull(strpbrk(word, "0123456789"), NULL, 10);
	}
	p = take_name(p, global->name, sizeof(global->name));
	while (isspace((unsigned char)*p))
		p++;
	if (*p == '[')
		n = strtoull(p + 1, NULL, 10);
	global->size = n * bits / 8;
	if (!global->name[0] || !global->size ||
	    space_alloc(module->ctx, module->ctx->device, global->size, RANGE_GLOBAL,
			&global->addr)) {
		free(global);
		return false;
	}
	global->next = module->globals;
	module->globals = global;
	return true;
}

static bool is_word(const char *p, const char *word)
{
	size_t n = strlen(word);

	return strncmp(p, word, n) == 0 && isspace((unsigned char)p[n]);
}

static CUresult parse_text(struct CUmod_st *module, const char *text)
{
	const char *p = text;
	bool is_fine = true;

	while (is_fine && *p) {
		if (p[0] == '/' && p[1] == '/') {
			p += strcspn(p, "\n");
		} else if (p[0] == '/' && p[1] == '*') {
			p = strstr(p + 2, "*/");
			if (!p)
				return CUDA_ERROR_INVALID_PTX;
			p += 2;
		} else if (is_word(p, ".entry")) {
			is_fine = add_function(module, p + strlen(".entry"));
			p++;
		} else if (is_word(p, ".global") && (p == text || p[-1] != '.')) {
			is_fine = add_global(module, p + strlen(".global"));
			p++;
		} else {
			p++;
		}
	}
	return is_fine ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void free_memory(struct CUmod_st *module)
{
	struct module_global *global;
	struct range *range;

	space_write_lock();
	for (global = module->globals; global; global = global->next) {
		range = space_find(global->addr);
		if (range)
			space_free(range);
	}
	space_unlock();
}

static void module_free(struct CUmod_st *module)
{
	struct CUfunc_st *function;
	struct module_global *global;

	module->magic = 0;
	while ((function = module->functions)) {
		module->functions = function->next;
		free(function);
	}
	while ((global = module->globals)) {
		module->globals = global->next;
		free(global);
	}
	free(module);
}

void module_context_gone(struct CUctx_st *ctx)
{
	struct CUmod_st *module;

	while ((module = ctx->modules)) {
		ctx->modules = module->next;
		module_free(module);
	}
}

static CUresult load_module(CUmodule *ret, const void *image)
{
	struct CUctx_st *ctx = context_current();
	const char *text = image;
	struct CUmod_st *module;
	CUresult r;

	if (!ret || !image)
		return CUDA_ERROR_INVALID_VALUE;
	if (memcmp(text, "\177ELF", 4) == 0 || memcmp(text, "\x50\xed\x55\xba", 4) == 0) {
		node_debug("a binary module cannot run here: only PTX with known entries can");
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	if (!strstr(text, ".version"))
		return CUDA_ERROR_INVALID_IMAGE;
	r = hold_upload(ctx);
	if (r)
		return r;
	module = calloc(1, sizeof(*module));
	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->magic = MODULE_MAGIC;
	module->ctx = ctx;
	r = parse_text(module, text);
	if (r) {
		free_memory(module);
		module_free(module);
		return r;
	}
	state_lock();
	module->next = ctx->modules;
	ctx->modules = module;
	state_unlock();
	*ret = module;
	return CUDA_SUCCESS;
}

API(cuModuleLoadData, (CUmodule * module, const void *image))
{
	API_ENTER(API_CONTEXT);
	return load_module(module, image);
}

API(cuModuleLoadDataEx, (CUmodule * module, const void *image, unsigned int numOptions,
			 CUjit_option *options, void **optionValues))
{
	API_ENTER(API_CONTEXT);
	(void)numOptions, (void)options, (void)optionValues;
	return load_module(module, image);
}

API(cuModuleLoadFatBinary, (CUmodule * module, const void *fatCubin))
{
	API_ENTER(API_CONTEXT);
	return load_module(module, fatCubin);
}

API(cuModuleLoad, (CUmodule * module, const char *fname))
{
	FILE *file;
	char *text;
	size_t n;
	CUresult r;

	API_ENTER(API_CONTEXT);
	if (!module || !fname)
		return CUDA_ERROR_INVALID_VALUE;
	file = fopen(fname, "re");
	if (!file)
		return CUDA_ERROR_FILE_NOT_FOUND;
	text = calloc(1, (1 << 20) + 1);
	n = text ? fread(text, 1, 1 << 20, file) : 0;
	fclose(file);
	r = n ? load_module(module, text) : CUDA_ERROR_INVALID_IMAGE;
	free(text);
	return r;
}

static bool is_valid(CUmodule module)
{
	return module && module->magic == MODULE_MAGIC;
}

API(cuModuleUnload, (CUmodule hmod))
{
	struct CUmod_st **link;
	CUresult r;

	API_ENTER(API_CONTEXT | API_UNSAFE);
	if (!is_valid(hmod))
		return CUDA_ERROR_INVALID_HANDLE;
	state_lock();
	r = hold_drain(hmod->ctx);
	for (link = &hmod->ctx->modules; *link && *link != hmod; link = &(*link)->next)
		;
	if (!r && *link)
		*link = hmod->next;
	state_unlock();
	if (!r) {
		free_memory(hmod);
		module_free(hmod);
	}
	return r;
}

API(cuModuleGetFunction, (CUfunction * hfunc, CUmodule hmod, const char *name))
{
	struct CUfunc_st *function;

	API_ENTER(API_CONTEXT);
	if (!hfunc || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_valid(hmod))
		return CUDA_ERROR_INVALID_HANDLE;
	for (function = hmod->functions; function; function = function->next)
		if (strcmp(function->name, name) == 0) {
			*hfunc = function;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}

API(cuModuleGetFunctionCount, (unsigned int *count, CUmodule mod))
{
	struct CUfunc_st *function;

	API_ENTER(API_CONTEXT);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_valid(mod))
		return CUDA_ERROR_INVALID_HANDLE;
	*count = 0;
	for (function = mod->functions; function; function = function->next)
		++*count;
	return CUDA_SUCCESS;
}

API(cuModuleGetGlobal_v2, (CUdeviceptr * dptr, size_t *bytes, CUmodule hmod, const char *name))
{
	struct module_global *global;

	API_ENTER(API_CONTEXT);
	if ((!dptr && !bytes) || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_valid(hmod))
		return CUDA_ERROR_INVALID_HANDLE;
	for (global = hmod->globals; global; global = global->next)
		if (strcmp(global->name, name) == 0) {
			if (dptr)
				*dptr = global->addr;
			if (bytes)
				*bytes = global->size;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}

API(cuModuleGetLoadingMode, (int *mode))
{
	API_ENTER(API_INIT);
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = 1; /* eager */
	return CUDA_SUCCESS;
}
