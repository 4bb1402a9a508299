/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Looks driver functions up in every way a program can, and checks who answers. Run by
 * run_preload.sh under LD_PRELOAD; built twice, once linked with the fake driver
 * (PROBE_LINKED), once without, so that it loads it itself.
 */

#include "abi/cuda_abi.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int n_failed;

#define CHECK(cond, ...)                                                  \
	do {                                                              \
		if (!(cond)) {                                            \
			n_failed++;                                       \
			printf("%s:%d: %s: ", __FILE__, __LINE__, #cond); \
			printf(__VA_ARGS__);                              \
			putchar('\n');                                    \
		}                                                         \
	} while (0)

static const struct entry {
	const char *base;
	const char *symbol;
	int since;
	bool is_per_thread;
	bool is_hook;
} entries[] = {
#define IS_PER_THREAD_none     false
#define IS_PER_THREAD_legacy   false
#define IS_PER_THREAD_implicit false
#define IS_PER_THREAD_ptds     true
#define IS_PER_THREAD_ptsz     true
#define CU_HOOK(kind, base, symbol, since, stream, params, args) \
	{#base, #symbol, since, IS_PER_THREAD_##stream, true},
#define CU_REAL(base, symbol, since, stream, params) \
	{#base, #symbol, since, IS_PER_THREAD_##stream, false},
#include "hook/table/cuda_hooks.def"
};

static const size_t n_entries = sizeof(entries) / sizeof(entries[0]);

/* The file name of the object that fn lies in. */
static const char *owner(void *fn)
{
	const char *slash;
	Dl_info info;

	if (!fn || !dladdr(fn, &info) || !info.dli_fname)
		return "nobody";
	slash = strrchr(info.dli_fname, '/');
	return slash ? slash + 1 : info.dli_fname;
}

static bool is_owner(void *fn, const char *name)
{
	return strcmp(owner(fn), name) == 0;
}

static const char *owner_wanted(const struct entry *entry)
{
	return entry->is_hook ? "libnvshare.so" : "libcuda.so.1";
}

/* dlerror() must tell of the last call alone, as without us. */
static void check_names_by_handle(void *handle)
{
	for (size_t i = 0; i < n_entries; i++) {
		void *fn = dlsym(handle, entries[i].symbol);

		CHECK(is_owner(fn, owner_wanted(&entries[i])), "%s from %s", entries[i].symbol,
		      owner(fn));
		CHECK(dlerror() == NULL, "%s", entries[i].symbol);
		CHECK(dlsym(handle, entries[i].symbol) == fn, "%s again", entries[i].symbol);
	}

	CHECK(!dlsym(handle, "cuMemAlloc_v9"), "a name that nobody has");
	CHECK(dlerror() != NULL, "its error");
	CHECK(!dlsym(handle, "malloc") || is_owner(dlsym(handle, "malloc"), "libc.so.6"), "malloc");
	(void)dlerror();
}

static void check_proc_address(void *handle)
{
	typedef CUresult (*v1_fn)(const char *, void **, int, cuuint64_t);
	typedef CUresult (*v2_fn)(const char *, void **, int, cuuint64_t,
				  CUdriverProcAddressQueryResult *);
	v1_fn v1 = (v1_fn)dlsym(handle, "cuGetProcAddress");
	v2_fn v2 = (v2_fn)dlsym(handle, "cuGetProcAddress_v2");
	CUdriverProcAddressQueryResult status;
	void *fn = NULL;

	for (size_t i = 0; i < n_entries; i++) {
		const struct entry *entry = &entries[i];
		cuuint64_t flags = entry->is_per_thread
					   ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
					   : CU_GET_PROC_ADDRESS_DEFAULT;

		fn = NULL;
		CHECK(v1(entry->base, &fn, entry->since, flags) == CUDA_SUCCESS, "%s", entry->base);
		CHECK(is_owner(fn, owner_wanted(entry)), "%s from %s", entry->base, owner(fn));
		CHECK(fn == dlsym(handle, entry->symbol), "%s: which version", entry->symbol);
		fn = NULL;
		CHECK(v2(entry->base, &fn, entry->since, flags, &status) == CUDA_SUCCESS, "%s",
		      entry->base);
		CHECK(fn == dlsym(handle, entry->symbol), "%s: which version", entry->symbol);
	}

	/* By its own answer a program of CUDA 12 gets the form with five arguments. */
	CHECK(v1("cuGetProcAddress", &fn, 12000, 0) == CUDA_SUCCESS, "itself");
	CHECK(fn == (void *)v2, "from %s", owner(fn));
	CHECK(v1("cuGetProcAddress", &fn, 11030, 0) == CUDA_SUCCESS, "itself");
	CHECK(fn == (void *)v1, "from %s", owner(fn));
	CHECK(v2("cuNothing", &fn, 12000, 0, &status) == CUDA_ERROR_NOT_FOUND, "unknown");
	CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, "status %d", (int)status);
}

/* RTLD_NEXT is the caller's: 1, then (ours, which says nothing), then 2, then the last. */
static void check_chain(const char *wanted)
{
	unsigned int (*say)(unsigned int) =
		(unsigned int (*)(unsigned int))dlsym(RTLD_DEFAULT, "chain_say");
	unsigned int (*n_asked)(void) =
		(unsigned int (*)(void))dlsym(RTLD_DEFAULT, "chain_n_asked");
	void *(*next_alloc)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, "chain_next_alloc");

	for (int again = 0; say && again < 3; again++)
		CHECK(say(0) == (unsigned int)atoi(wanted), "said %u", say(0));
	CHECK(say || !*wanted, "nobody says %s", wanted);
	if (n_asked)
		CHECK(n_asked() > 0, "the other dlsym() was passed by");
	for (int again = 0; next_alloc && again < 2; again++)
		CHECK(is_owner(next_alloc(), "libnvshare.so"), "next from %s", owner(next_alloc()));
}

static void check_other_names(void)
{
	CHECK(is_owner(dlsym(RTLD_NEXT, "strtoul"), "libc.so.6"), "strtoul");
	CHECK(is_owner(dlsym(RTLD_DEFAULT, "strtoul"), "libc.so.6"), "strtoul");
	CHECK(is_owner(dlvsym(RTLD_DEFAULT, "dladdr", "GLIBC_2.34"), "libc.so.6"), "dladdr");
	CHECK(!dlsym(RTLD_NEXT, "main"), "main is before whatever is next");
	CHECK(dlerror() != NULL, "its error");
}

#ifdef PROBE_LINKED
CUresult cuInit(unsigned int flags);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
unsigned int fake_n_launches(void);

static void check_linked(void)
{
	CHECK(cuGraphLaunch(NULL, NULL) == CUDA_SUCCESS, "before anything is loaded");
	CHECK(fake_n_launches() == 1, "%u launches", fake_n_launches());
	CHECK(cuInit(0) == CUDA_SUCCESS, "init");
	CHECK(is_owner((void *)cuGraphLaunch, "libnvshare.so"), "linked with %s",
	      owner((void *)cuGraphLaunch));
	CHECK(is_owner(dlsym(RTLD_NEXT, "cuGraphLaunch"), "libnvshare.so"), "next");
	CHECK(is_owner(dlsym(RTLD_DEFAULT, "cuGraphLaunch"), "libnvshare.so"), "default");
}
#else
/* A program that asks whether it has CUDA must not find it because of us. */
static void check_absent(void)
{
	void *self = dlopen(NULL, RTLD_LAZY);

	for (int again = 0; again < 2; again++) {
		CHECK(!dlsym(RTLD_DEFAULT, "cuInit"), "from %s",
		      owner(dlsym(RTLD_DEFAULT, "cuInit")));
		CHECK(dlerror() != NULL, "its error");
		CHECK(!dlsym(RTLD_NEXT, "cuMemFree_v2"), "from %s",
		      owner(dlsym(RTLD_NEXT, "cuMemFree_v2")));
		CHECK(dlerror() != NULL, "its error");
		CHECK(!dlsym(self, "cuLaunchKernel"), "from %s",
		      owner(dlsym(self, "cuLaunchKernel")));
		CHECK(!dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo"), "from %s",
		      owner(dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo")));
	}
}

#endif

int main(int argc, char **argv)
{
	void *libcuda;

	check_other_names();
#ifdef PROBE_LINKED
	check_linked();
#else
	check_absent();
#endif
	libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
	if (!libcuda) {
		printf("no libcuda.so.1: %s\n", dlerror());
		return 2;
	}
	check_names_by_handle(libcuda);
	check_proc_address(libcuda);
	check_chain(argc > 1 ? argv[1] : "");
	check_other_names();
	CHECK(is_owner(dlsym(RTLD_DEFAULT, "cuLaunchKernel"), "libnvshare.so"), "default");

	if (n_failed)
		printf("%d checks failed\n", n_failed);
	return n_failed ? 1 : 0;
}
