/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/table/hook_table.h"

#include "hook/gate/gate_private.h"
#include "hook/table/cuda_real.h"
#include "hook/table/hooks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A base whose legacy form is gated but whose per-thread form is not is a way round the gate. */
static bool has_per_thread_twin(const struct hook *legacy)
{
	for (size_t i = 0; i < hook_table_len; i++) {
		const struct hook *hook = &hook_table[i];
		size_t len = strlen(legacy->symbol);

		if (strncmp(hook->symbol, legacy->symbol, len) == 0 &&
		    ((hook->stream == HOOK_STREAM_ptds &&
		      strcmp(hook->symbol + len, "_ptds") == 0) ||
		     (hook->stream == HOOK_STREAM_ptsz &&
		      strcmp(hook->symbol + len, "_ptsz") == 0)))
			return true;
	}

	return false;
}

static void every_legacy_hook_has_a_per_thread_twin(void **state)
{
	(void)state;
	for (size_t i = 0; i < hook_table_len; i++) {
		if (hook_table[i].stream == HOOK_STREAM_legacy ||
		    hook_table[i].stream == HOOK_STREAM_implicit)
			assert_true(has_per_thread_twin(&hook_table[i]));
	}
}

/* The name says which variant an entry is; the stream column must say the same. */
static void symbols_agree_with_their_base_and_stream(void **state)
{
	(void)state;
	for (size_t i = 0; i < hook_table_len; i++) {
		const struct hook *hook = &hook_table[i];
		bool is_ptds = strstr(hook->symbol, "_ptds") != NULL;
		bool is_ptsz = strstr(hook->symbol, "_ptsz") != NULL;

		assert_int_equal(strncmp(hook->symbol, hook->base, strlen(hook->base)), 0);
		assert_int_equal(is_ptds, hook->stream == HOOK_STREAM_ptds);
		assert_int_equal(is_ptsz, hook->stream == HOOK_STREAM_ptsz);
	}
}

static void finds_every_listed_symbol_and_no_other(void **state)
{
	(void)state;
	for (size_t i = 0; i < hook_table_len; i++)
		assert_ptr_equal(hook_table_find(hook_table[i].symbol), &hook_table[i]);
	assert_null(hook_table_find("cuMemAlloc_v9"));
	assert_null(hook_table_find("cuCtxSynchronize"));
	assert_null(hook_table_find("malloc"));
	assert_null(hook_table_find(""));
	assert_null(hook_table_find("cu"));
}

static void *fake_driver[2];

static void *fake_dlsym(void *handle, const char *symbol)
{
	(void)handle;
	if (strcmp(symbol, "cuMemAlloc_v2") == 0)
		return &fake_driver[0];
	if (strcmp(symbol, "cuMemcpyHtoD_v2") == 0 || strcmp(symbol, "cuMemcpyDtoD_v2") == 0)
		return &fake_driver[1];
	return NULL;
}

static void the_drivers_pointer_names_the_hook(void **state)
{
	const size_t n_members = sizeof(struct cuda_real) / sizeof(void *);

	(void)state;
	assert_int_equal(cuda_real_load(fake_dlsym, fake_driver), n_members - 3);
	assert_ptr_equal(hook_table_find_real("cuMemAlloc", &fake_driver[0])->fn,
			 (void *)cuMemAlloc_v2);
	assert_null(hook_table_find_real("cuMemAlloc", state));

	/* One address behind two names. */
	assert_string_equal(hook_table_find_real("cuMemcpyHtoD", &fake_driver[1])->base,
			    "cuMemcpyHtoD");
	assert_string_equal(hook_table_find_real("cuMemcpyDtoD", &fake_driver[1])->base,
			    "cuMemcpyDtoD");
	/* A name that is not the base's: the pointer decides alone. */
	assert_string_equal(hook_table_find_real("cuMemAlloc_v2", &fake_driver[0])->symbol,
			    "cuMemAlloc_v2");
}

static void what_the_driver_lacks_is_an_error_code(void **state)
{
	(void)state;
	(void)cuda_real_load(fake_dlsym, fake_driver);
	assert_null(cuda_real.cuGraphLaunch);
	assert_int_equal(cuGraphLaunch(NULL, NULL), CUDA_ERROR_NOT_FOUND);
}

/* Whose arguments name memory of the program by its address, and which are no work. */
static const char *const lookers[] = {
	"cuGraphAddMemcpyNode",
	"cuGraphAddMemsetNode",
	"cuGraphAddBatchMemOpNode",
	"cuGraphAddChildGraphNode",
	"cuGraphAddNode",
	"cuGraphAddNode_v2",
	"cuGraphClone",
	"cuGraphMemcpyNodeSetParams",
	"cuGraphMemsetNodeSetParams",
	"cuGraphBatchMemOpNodeSetParams",
	"cuGraphNodeSetParams",
	"cuGraphExecMemcpyNodeSetParams",
	"cuGraphExecMemsetNodeSetParams",
	"cuGraphExecBatchMemOpNodeSetParams",
	"cuGraphExecChildGraphNodeSetParams",
	"cuGraphExecNodeSetParams",
	"cuGraphExecUpdate",
	"cuGraphExecUpdate_v2",
	"cuGraphInstantiate",
	"cuGraphInstantiate_v2",
	"cuGraphInstantiateWithFlags",
	"cuGraphInstantiateWithParams",
	"cuGraphInstantiateWithParams_ptsz",
	"cuTexObjectCreate",
	"cuTexRefSetAddress",
	"cuTexRefSetAddress_v2",
	"cuTexRefSetAddress2D",
	"cuTexRefSetAddress2D_v2",
	"cuTexRefSetAddress2D_v3",
};

static unsigned int n_inside;

/* For every signature: it reads none of its arguments. */
static CUresult inside(void)
{
	n_inside += gate_self.depth > 0;
	return CUDA_SUCCESS;
}

static void *inside_dlsym(void *handle, const char *symbol)
{
	(void)handle;
	(void)symbol;
	return (void *)inside;
}

static void what_looks_addresses_up_is_inside_the_gate(void **state)
{
	typedef CUresult (*call_fn)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
				    uintptr_t, uintptr_t);

	(void)state;
	assert_int_equal(cuda_real_load(inside_dlsym, fake_driver), 0);
	for (size_t i = 0; i < sizeof(lookers) / sizeof(lookers[0]); i++) {
		const struct hook *hook = hook_table_find(lookers[i]);

		assert_non_null(hook);
		n_inside = 0;
		assert_int_equal(((call_fn)hook->fn)(0, 0, 0, 0, 0, 0, 0), CUDA_SUCCESS);
		assert_int_equal(n_inside, 1);
		assert_int_equal(gate_self.depth, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_legacy_hook_has_a_per_thread_twin),
		cmocka_unit_test(symbols_agree_with_their_base_and_stream),
		cmocka_unit_test(finds_every_listed_symbol_and_no_other),
		cmocka_unit_test(the_drivers_pointer_names_the_hook),
		cmocka_unit_test(what_the_driver_lacks_is_an_error_code),
		cmocka_unit_test(what_looks_addresses_up_is_inside_the_gate),
	};

	return cmocka_run_group_tests_name("hook/hook_table", tests, NULL, NULL);
}
