/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/gpus.h"

#include "util/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define GIB (1ull << 30)

/* ---- an NVML of our own ------------------------------------------------------- */

struct nvml_device_st {
	const char *name;
	const char *uuid;
	unsigned long long total, free, used;
	unsigned int is_mig;
	unsigned int n_migs;
	struct nvml_device_st *migs;
	int error;
	unsigned long long mj; /* 0: it does not say */
	unsigned int mw;
};

static struct nvml_device_st instances[] = {
	{"A100 MIG 1g", "MIG-11111111-1111-1111-1111-111111111111", 5 * GIB, 0, 0, 0, 0, NULL, 0, 0,
	 0},
	{"A100 MIG 2g", "MIG-22222222-2222-2222-2222-222222222222", 10 * GIB, 0, GIB, 0, 0, NULL, 0,
	 0, 0},
};
static struct nvml_device_st devices[] = {
	{"H200", "GPU-33333333-3333-3333-3333-333333333333", 100 * GIB, 0, 2 * GIB, 0, 0, NULL, 0,
	 0, 0},
	{"A100", "GPU-44444444-4444-4444-4444-444444444444", 40 * GIB, 0, 0, 1, 2, instances, 0, 0,
	 0},
	{"lost", "GPU-55555555-5555-5555-5555-555555555555", 40 * GIB, 0, 0, 0, 0, NULL, 15, 0, 0},
};

static int device_count(unsigned int *count)
{
	*count = 3;
	return 0;
}

static int device_handle(unsigned int i, struct nvml_device_st **device)
{
	*device = &devices[i];
	return 0;
}

static int device_name(struct nvml_device_st *device, char *name, unsigned int length)
{
	(void)snprintf(name, length, "%s", device->name);
	return 0;
}

static int device_uuid(struct nvml_device_st *device, char *uuid, unsigned int length)
{
	(void)snprintf(uuid, length, "%s", device->uuid);
	return device->error;
}

static int device_memory(struct nvml_device_st *device, void *memory)
{
	const unsigned long long values[] = {device->total, device->free, device->used};

	memcpy(memory, values, sizeof(values));
	return device->error;
}

static int mig_mode(struct nvml_device_st *device, unsigned int *current, unsigned int *pending)
{
	*current = *pending = device->is_mig;
	return 0;
}

static int mig_count(struct nvml_device_st *device, unsigned int *count)
{
	*count = device->n_migs;
	return 0;
}

static int mig_handle(struct nvml_device_st *device, unsigned int i, struct nvml_device_st **mig)
{
	*mig = &device->migs[i];
	return 0;
}

static int device_energy(struct nvml_device_st *device, unsigned long long *mj)
{
	*mj = device->mj;
	return device->mj ? 0 : 3;
}

static int device_power(struct nvml_device_st *device, unsigned int *mw)
{
	*mw = device->mw;
	return device->mw ? 0 : 3;
}

static bool is_instance(const struct nvml_device_st *device)
{
	return device == &instances[0] || device == &instances[1];
}

static int pcie_generation(struct nvml_device_st *device, unsigned int *generation)
{
	*generation = device == &devices[0] ? 5 : 4;
	return is_instance(device) ? 3 : 0;
}

static int pcie_lanes(struct nvml_device_st *device, unsigned int *lanes)
{
	*lanes = 16;
	return is_instance(device) ? 3 : 0;
}

/* Not opened by dlopen: never closed either. */
static void fake_nvml(struct nvml *nvml)
{
	*nvml = (struct nvml){
		.handle = nvml,
		.device_count = device_count,
		.device_handle = device_handle,
		.device_name = device_name,
		.device_uuid = device_uuid,
		.device_memory = device_memory,
		.device_energy = device_energy,
		.device_power = device_power,
		.pcie_generation = pcie_generation,
		.pcie_lanes = pcie_lanes,
		.mig_mode = mig_mode,
		.mig_count = mig_count,
		.mig_handle = mig_handle,
	};
}

static void no_nvml(struct gpus *gpus)
{
	memset(gpus, 0, sizeof(*gpus));
	gpus->listed_ns = UINT64_MAX / 2; /* far ahead: not asked for */
}

/* ---- tests -------------------------------------------------------------------- */

static void uuids_are_sixteen_bytes(void **state)
{
	static const char *const bad[] = {
		"",
		"GPU-",
		"GPU-8d0a",
		"8d0a1b2c-3d4e-5f60-7182-93a4b5c6d7e8",
		"CPU-8d0a1b2c-3d4e-5f60-7182-93a4b5c6d7e8",
		"GPU-8d0a1b2c-3d4e-5f60-7182-93a4b5c6d7e",
		"GPU-8d0a1b2c-3d4e-5f60-7182-93a4b5c6d7e8a",
		"GPU-8d0a1b2c-3d4e-5f60-7182-93a4b5c6d7eg",
		"GPU-8d-0a1b2c3d4e5f60718293a4b5c6d7e8",
		"MIG-GPU-8d0a1b2c-3d4e-5f60-7182-93a4b5c6d7e8/1/0",
	};
	static const uint8_t expected[16] = {0x8d, 0x0a, 0x1b, 0x2c, 0x3d, 0x4e, 0x5f, 0x60,
					     0x71, 0x82, 0x93, 0xa4, 0xb5, 0xc6, 0xd7, 0xe8};
	uint8_t uuid[16] = {0};
	const uint8_t zero[16] = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		print_message("%s\n", bad[i]);
		assert_false(nvml_parse_uuid(bad[i], uuid));
		assert_memory_equal(uuid, zero, sizeof(uuid));
	}
	assert_true(nvml_parse_uuid("GPU-8d0a1b2c-3d4e-5f60-7182-93a4b5c6d7e8", uuid));
	assert_memory_equal(uuid, expected, sizeof(uuid));
	memset(uuid, 0, sizeof(uuid));
	assert_true(nvml_parse_uuid("MIG-8D0A1B2C-3d4e-5f60-7182-93a4b5c6d7e8", uuid));
	assert_memory_equal(uuid, expected, sizeof(uuid));
}

static void instances_count_as_gpus_and_lost_devices_do_not(void **state)
{
	struct nvml_gpu found[SCHED_GPUS_MAX];
	struct nvml nvml;

	(void)state;
	fake_nvml(&nvml);
	assert_int_equal(nvml_list(&nvml, found, SCHED_GPUS_MAX), 3);
	assert_string_equal(found[0].name, "H200");
	assert_string_equal(found[1].name, "A100 MIG 1g");
	assert_string_equal(found[2].name, "A100 MIG 2g");
	assert_int_equal(found[2].total, 10 * GIB);
	assert_int_equal(found[2].used, GIB);
	assert_int_equal(nvml_list(&nvml, found, 2), 2);
	nvml.mig_mode = NULL; /* an old driver */
	assert_int_equal(nvml_list(&nvml, found, SCHED_GPUS_MAX), 2);
}

static void without_nvml_the_first_client_tells_the_size(void **state)
{
	const uint8_t uuid[16] = {1};
	struct gpus gpus;
	uint32_t i = 9;

	(void)state;
	no_nvml(&gpus);
	assert_int_equal(gpus_find(&gpus, uuid, 0, 0, &i), GPUS_E_UNKNOWN);
	assert_int_equal(gpus_find(&gpus, uuid, 1ull << 45, 0, &i), GPUS_E_UNKNOWN);
	assert_int_equal(i, 9);
	assert_int_equal(gpus_find(&gpus, uuid, GIB, 0, &i), 0);
	assert_int_equal(i, 0);
	assert_int_equal(gpus_find(&gpus, uuid, 99 * GIB, 0, &i), 0);
	assert_int_equal(gpus.n, 1);
	assert_int_equal(gpus.at[0].total, GIB);
}

static void an_unused_entry_is_given_to_another_gpu(void **state)
{
	struct gpus gpus;
	uint8_t uuid[16] = {0};
	uint32_t i;

	(void)state;
	no_nvml(&gpus);
	for (uint8_t n = 0; n < SCHED_GPUS_MAX; n++) {
		uuid[0] = n;
		assert_int_equal(gpus_find(&gpus, uuid, GIB, 0, &i), 0);
		gpus.at[i].n_clients = 1;
		gpus.at[i].is_told = true;
	}
	uuid[0] = 100;
	assert_int_equal(gpus_find(&gpus, uuid, GIB, 0, &i), GPUS_E_FULL);
	gpus.at[3].n_clients = 0;
	assert_int_equal(gpus_find(&gpus, uuid, 2 * GIB, 0, &i), 0);
	assert_int_equal(i, 3);
	assert_false(gpus.at[3].is_told);
	assert_int_equal(gpus.at[3].total, 2 * GIB);
}

static void a_gpu_that_appears_later_is_found(void **state)
{
	uint8_t uuid[16];
	struct gpus gpus;
	uint32_t i;

	(void)state;
	no_nvml(&gpus);
	gpus.listed_ns = 0;
	fake_nvml(&gpus.nvml);
	memset(uuid, 0x22, sizeof(uuid));
	assert_int_equal(gpus_find(&gpus, uuid, 0, CLOCK_NS_PER_SEC, &i), 0);
	assert_int_equal(gpus.at[i].total, 10 * GIB);
	assert_int_equal(gpus.n, 3);
	/* An instance has the link of its card. */
	assert_int_equal(gpus.at[i].link_bandwidth, 25203200000ull);
	assert_int_equal(gpus.at[0].link_bandwidth, 50406400000ull);
}

/* Others have taken all places, and only half of them are still used. */
static void nvml_outvotes_clients_and_takes_free_places(void **state)
{
	uint8_t uuid[16] = {0};
	struct gpus gpus;
	uint32_t i;

	(void)state;
	no_nvml(&gpus);
	for (uint8_t n = 0; n < SCHED_GPUS_MAX; n++) {
		memset(uuid, n ? n : 0x33, sizeof(uuid));
		assert_int_equal(gpus_find(&gpus, uuid, 1 << 20, 0, &i), 0);
		gpus.at[i].n_clients = 1;
		gpus.at[i].is_told = true;
	}
	for (i = 1; i < SCHED_GPUS_MAX; i += 2)
		gpus_forget(&gpus.at[i]);
	gpus.listed_ns = 0;
	fake_nvml(&gpus.nvml);
	memset(uuid, 0x33, sizeof(uuid));
	assert_int_equal(gpus_find(&gpus, uuid, 1 << 20, CLOCK_NS_PER_SEC, &i), 0);
	assert_int_equal(i, 0);
	assert_int_equal(gpus.at[0].total, 100 * GIB);
	assert_non_null(gpus.at[0].device);
	assert_true(gpus.at[0].is_resized);
	assert_int_equal(gpus.at[0].n_clients, 1);
	memset(uuid, 0x22, sizeof(uuid));
	assert_int_equal(gpus_find(&gpus, uuid, 0, CLOCK_NS_PER_SEC, &i), 0);
	assert_int_equal(gpus.at[i].total, 10 * GIB);
}

static void a_forgotten_gpu_is_not_found(void **state)
{
	const uint8_t uuid[16] = {0};
	struct gpus gpus;
	uint32_t i;

	(void)state;
	no_nvml(&gpus);
	assert_int_equal(gpus_find(&gpus, uuid, GIB, 0, &i), 0);
	gpus_forget(&gpus.at[i]);
	assert_int_equal(gpus_find(&gpus, uuid, 0, 0, &i), GPUS_E_UNKNOWN);
	assert_int_equal(gpus_find(&gpus, uuid, 2 * GIB, 0, &i), 0);
	assert_int_equal(gpus.at[i].total, 2 * GIB);
	assert_int_equal(gpus.n, 1);
}

/* A fresh card of 100 GiB, of which strangers use 2. */
static void start_sampling(struct gpus *gpus)
{
	uint8_t uuid[16];
	uint32_t i;

	no_nvml(gpus);
	gpus->listed_ns = 0;
	fake_nvml(&gpus->nvml);
	devices[0].used = 2 * GIB;
	memset(uuid, 0x33, sizeof(uuid));
	assert_int_equal(gpus_find(gpus, uuid, 0, CLOCK_NS_PER_SEC, &i), 0);
	assert_int_equal(i, 0);
	assert_int_equal(gpus->at[0].external, 2 * GIB);
}

static void account(struct gpus *gpus, uint64_t on_card, uint64_t budget)
{
	static struct memory_account share;
	struct memory_account after = {.on_card = on_card, .budget = budget};

	if (gpus->at[0].reported == 0 && gpus->at[0].allowed == 0)
		share = (struct memory_account){0};
	gpus_account(&gpus->at[0], &share, &after, gpus->at[0].sampled_ns);
	share = after;
}

static void second_contexts_are_not_external(void **state)
{
	const struct memory_account none = {0},
				    share = {.budget = 4 * GIB, .second = 2 * GIB, .contexts = GIB};
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	gpus_account(&gpus.at[0], &none, &share, CLOCK_NS_PER_SEC);
	assert_int_equal(gpus.at[0].contexts, 3 * GIB);
	assert_int_equal(gpus.at[0].seconds, 2 * GIB);
	assert_int_equal(gpus.at[0].reported, 2 * GIB);
	assert_int_equal(gpus.at[0].allowed, 6 * GIB);
	gpus_account(&gpus.at[0], &share, &none, CLOCK_NS_PER_SEC);
	assert_int_equal(gpus.at[0].contexts, 0);
	assert_int_equal(gpus.at[0].contexts_max, 3 * GIB);
	assert_int_equal(gpus.at[0].seconds + gpus.at[0].reported + gpus.at[0].allowed, 0);
}

/* A liar's bytes are neither its own nor taken off others'. */
static void what_is_doubted_is_in_no_sum(void **state)
{
	const struct memory_account none = {0};
	struct memory_account liar = {.on_card = 90 * GIB, .budget = 90 * GIB, .contexts = 8 * GIB};
	struct memory_account before = liar;
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	gpus_account(&gpus.at[0], &none, &liar, CLOCK_NS_PER_SEC);
	liar.doubted = 88 * GIB;
	gpus_account(&gpus.at[0], &before, &liar, CLOCK_NS_PER_SEC);
	assert_int_equal(gpus.at[0].reported, 2 * GIB);
	assert_int_equal(gpus.at[0].allowed, 2 * GIB);
	assert_int_equal(gpus.at[0].contexts, 2 * GIB);
	devices[0].used = 50 * GIB;
	(void)gpus_sample(&gpus, 0, 60 * CLOCK_NS_PER_SEC, 0);
	(void)gpus_sample(&gpus, 0, 61 * CLOCK_NS_PER_SEC, 0);
	assert_int_equal(gpus.at[0].external, 48 * GIB);
	before = liar;
	liar.on_card = GIB; /* the doubt is older than this report */
	gpus_account(&gpus.at[0], &before, &liar, 62 * CLOCK_NS_PER_SEC);
	gpus_account(&gpus.at[0], &liar, &none, 62 * CLOCK_NS_PER_SEC);
	assert_int_equal(gpus.at[0].reported + gpus.at[0].allowed + gpus.at[0].contexts, 0);
	assert_int_equal(gpus.at[0].n_contexts, 0);
}

struct limit_row {
	uint64_t reserve, bytes;
	uint32_t n;
	uint64_t max;
	bool is_limited;
};

/* Beside one that has a context and a second one, of 3 GiB together. */
static void a_second_context_has_limits(void **state)
{
	static const struct limit_row rows[] = {
		{4 * GIB, 0, 0, 2 * GIB, false},
		{2 * GIB, 0, 0, 0, false},
		{4 * GIB, 10 * GIB, 10, 2 * GIB, false},
		{4 * GIB, 5 * GIB, 0, GIB, true}, /* its own counts, too */
		{4 * GIB, 4 * GIB, 0, 0, true},
		{4 * GIB, 1, 0, 0, true},
		{4 * GIB, 0, 4, 2 * GIB, false},
		{4 * GIB, 0, 3, 0, true},
		{2 * GIB, 0, 3, 0, false}, /* there would be none anyway */
	};
	const struct memory_account other = {.second = 2 * GIB, .contexts = GIB};
	const struct memory_account own = {.contexts = GIB};
	const struct memory_account both = {.contexts = GIB, .second = GIB};
	const struct memory_account told = {.promised = 2 * GIB, .contexts = GIB};
	const struct memory_account own_told = {.contexts = GIB, .promised = GIB};
	struct gpus gpus;
	bool is_limited;

	(void)state;
	start_sampling(&gpus);
	gpus_account(&gpus.at[0], &(struct memory_account){0}, &other, CLOCK_NS_PER_SEC);
	gpus_account(&gpus.at[0], &(struct memory_account){0}, &own, CLOCK_NS_PER_SEC);
	assert_int_equal(gpus.at[0].n_contexts, 3);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct gpu_limits limits = {rows[i].reserve, rows[i].bytes, rows[i].n};

		assert_int_equal(gpus_second_max(&gpus.at[0], &own, &limits, &is_limited),
				 rows[i].max);
		assert_int_equal(is_limited, rows[i].is_limited);
	}
	/* What it has already is its own. */
	gpus_account(&gpus.at[0], &own, &both, CLOCK_NS_PER_SEC);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct gpu_limits limits = {rows[i].reserve, rows[i].bytes, rows[i].n};

		assert_int_equal(gpus_second_max(&gpus.at[0], &both, &limits, &is_limited),
				 rows[i].max);
	}
	/* What another one was promised is taken; what it was promised itself is not. */
	gpus_account(&gpus.at[0], &other, &told, CLOCK_NS_PER_SEC);
	gpus_account(&gpus.at[0], &both, &own_told, CLOCK_NS_PER_SEC);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct gpu_limits limits = {rows[i].reserve, rows[i].bytes, rows[i].n};

		assert_int_equal(gpus_second_max(&gpus.at[0], &own_told, &limits, &is_limited),
				 rows[i].max);
		assert_int_equal(is_limited, rows[i].is_limited);
	}
	assert_int_equal(gpus.at[0].n_contexts, 2);
	gpus_account(&gpus.at[0], &own_told, &(struct memory_account){0}, CLOCK_NS_PER_SEC);
	gpus_account(&gpus.at[0], &told, &(struct memory_account){0}, CLOCK_NS_PER_SEC);
	assert_int_equal(gpus.at[0].n_contexts, 0);
	assert_int_equal(gpus.at[0].n_promised, 0);
	assert_int_equal(gpus.at[0].promised, 0);
}

/* What one has given up and the other has not got yet is in no report. */
static void memory_on_its_way_is_not_external(void **state)
{
	const struct memory_account all = {.on_card = 40 * GIB, .budget = 40 * GIB};
	const struct memory_account rest = {.on_card = 10 * GIB, .budget = 10 * GIB};
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	gpus_account(&gpus.at[0], &(struct memory_account){0}, &all, CLOCK_NS_PER_SEC);
	devices[0].used = 42 * GIB;
	assert_false(gpus_sample(&gpus, 0, 2 * CLOCK_NS_PER_SEC, 0));
	gpus_account(&gpus.at[0], &all, &rest, CLOCK_NS_PER_SEC);
	gpus.at[0].on_way = 35 * GIB;
	for (uint64_t s = 4; s < 8; s++)
		assert_false(gpus_sample(&gpus, 0, s * CLOCK_NS_PER_SEC, 0));
	assert_int_equal(gpus.at[0].external, 2 * GIB);
	/* It did not come: whose it is by now is not ours to say. */
	gpus.at[0].on_way = 0;
	(void)gpus_sample(&gpus, 0, 8 * CLOCK_NS_PER_SEC, 0);
	(void)gpus_sample(&gpus, 0, 9 * CLOCK_NS_PER_SEC, 0);
	assert_int_equal(gpus.at[0].external, 32 * GIB);
}

/*
 * A client may bring 40 GiB in, and 30 of others are hidden in that. It finds the card full, and so
 * they are no longer; at once, because no client can have them.
 */
static void a_client_that_finds_the_card_full_shows_what_others_have(void **state)
{
	const struct memory_account asked = {
		.on_card = 5 * GIB, .swapped = 35 * GIB, .budget = 40 * GIB};
	const struct memory_account doubted = {
		.on_card = 5 * GIB, .swapped = 35 * GIB, .budget = 40 * GIB, .doubted = 4 * GIB};
	const struct memory_account other = {.on_card = 10 * GIB, .budget = 10 * GIB};
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	gpus_account(&gpus.at[0], &(struct memory_account){0}, &other, CLOCK_NS_PER_SEC);
	gpus_account(&gpus.at[0], &(struct memory_account){0}, &asked, CLOCK_NS_PER_SEC);
	devices[0].used = 47 * GIB;
	for (uint64_t s = 2; s < 6; s++)
		(void)gpus_sample(&gpus, 0, s * CLOCK_NS_PER_SEC, 0);
	assert_int_equal(gpus.at[0].external, 2 * GIB);

	assert_true(gpus_sample_full(&gpus, 0, 6 * CLOCK_NS_PER_SEC, &asked));
	assert_int_equal(gpus.at[0].external, 32 * GIB);
	assert_false(gpus_sample_full(&gpus, 0, 6 * CLOCK_NS_PER_SEC, &asked));
	(void)gpus_sample(&gpus, 0, 7 * CLOCK_NS_PER_SEC, 0);
	assert_int_equal(gpus.at[0].external, 32 * GIB);

	/* It never falls by that: what is on its way, or of one that has left, is not others'. */
	gpus.at[0].external = 20 * GIB;
	gpus.at[0].on_way = 3 * GIB;
	gpus.at[0].gone = 4 * GIB;
	assert_true(gpus_sample_full(&gpus, 0, 8 * CLOCK_NS_PER_SEC, &asked));
	assert_int_equal(gpus.at[0].external, 25 * GIB);
	gpus.at[0].gone = 10 * GIB;
	assert_false(gpus_sample_full(&gpus, 0, 9 * CLOCK_NS_PER_SEC, &asked));
	assert_int_equal(gpus.at[0].external, 25 * GIB);

	/* What it says it has and has not is in no sum. */
	gpus_account(&gpus.at[0], &asked, &doubted, 10 * CLOCK_NS_PER_SEC);
	gpus.at[0].gone = 0;
	gpus.at[0].on_way = 0;
	assert_true(gpus_sample_full(&gpus, 0, 10 * CLOCK_NS_PER_SEC, &doubted));
	assert_int_equal(gpus.at[0].external, 36 * GIB);
}

/* The driver leaves managed memory's place on the card until others need it. */
static void what_the_driver_keeps_of_managed_memory_is_not_external(void **state)
{
	const struct memory_account in = {.on_card = 40 * GIB, .budget = 40 * GIB};
	const struct memory_account out = {.on_card = GIB, .budget = GIB, .kept = 39 * GIB};
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	gpus_account(&gpus.at[0], &(struct memory_account){0}, &in, CLOCK_NS_PER_SEC);
	devices[0].used = 42 * GIB;
	assert_false(gpus_sample(&gpus, 0, 2 * CLOCK_NS_PER_SEC, 0));
	gpus_account(&gpus.at[0], &in, &out, CLOCK_NS_PER_SEC);
	for (uint64_t s = 4; s < 8; s++)
		assert_false(gpus_sample(&gpus, 0, s * CLOCK_NS_PER_SEC, 0));
	assert_int_equal(gpus.at[0].external, 2 * GIB);
	/* Gone or not: what is beyond is of others. */
	devices[0].used = 50 * GIB;
	(void)gpus_sample(&gpus, 0, 8 * CLOCK_NS_PER_SEC, 0);
	(void)gpus_sample(&gpus, 0, 9 * CLOCK_NS_PER_SEC, 0);
	assert_int_equal(gpus.at[0].external, 10 * GIB);
	gpus_account(&gpus.at[0], &out, &(struct memory_account){0}, CLOCK_NS_PER_SEC);
	assert_int_equal(gpus.at[0].allowed, 0);
}

static void what_our_clients_report_is_not_external(void **state)
{
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	account(&gpus, 30 * GIB, 30 * GIB);
	devices[0].used = 32 * GIB;
	assert_false(gpus_sample(&gpus, 0, 2 * CLOCK_NS_PER_SEC, 0));
	assert_int_equal(gpus.at[0].external, 2 * GIB);
	account(&gpus, 10 * GIB, 5 * GIB);
	assert_int_equal(gpus.at[0].reported, 10 * GIB);
	assert_int_equal(gpus.at[0].allowed, 10 * GIB);
	account(&gpus, 0, 0);
	assert_int_equal(gpus.at[0].reported, 0);
	assert_int_equal(gpus.at[0].allowed, 0);
}

/* A client brings 90 GiB in, and says so only when it is done. */
static void what_a_client_may_have_is_not_external_before_it_is_reported(void **state)
{
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	account(&gpus, 0, 90 * GIB);
	for (uint64_t gib = 0; gib <= 90; gib += 10) {
		devices[0].used = (2 + gib) * GIB;
		assert_false(gpus_sample(&gpus, 0, (2 + gib) * CLOCK_NS_PER_SEC, 0));
	}
	account(&gpus, 90 * GIB, 90 * GIB);
	assert_false(gpus_sample(&gpus, 0, 200 * CLOCK_NS_PER_SEC, 0));
	assert_int_equal(gpus.at[0].external, 2 * GIB);
}

/* 64 GiB are within the budget, and reported, before the driver has made any of them. */
static void what_is_about_to_be_allocated_is_not_taken_out_of_external(void **state)
{
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	devices[0].used = 70 * GIB;
	gpus.at[0].external = 70 * GIB;
	gpus.at[0].sample = 70 * GIB;
	account(&gpus, 64 * GIB, 64 * GIB);
	for (uint64_t gib = 0; gib <= 60; gib += 30) {
		devices[0].used = (70 + gib) * GIB;
		assert_false(gpus_sample(&gpus, 0, (2 + gib / 30) * CLOCK_NS_PER_SEC, 0));
	}
	/* By now it is there, so what is gone was others'. */
	(void)gpus_sample(&gpus, 0, 8 * CLOCK_NS_PER_SEC, 0);
	devices[0].used = 74 * GIB;
	assert_true(gpus_sample(&gpus, 0, 13 * CLOCK_NS_PER_SEC, 0));
	assert_int_equal(gpus.at[0].external, 10 * GIB);
	/* Freed, it is not waited for. */
	account(&gpus, 0, 0);
	devices[0].used = 10 * GIB;
	assert_false(gpus_sample(&gpus, 0, 14 * CLOCK_NS_PER_SEC, 0));
}

/* Two that take turns, at each of which less is reported for a moment than before and after. */
static void what_moves_is_not_about_to_be_allocated(void **state)
{
	struct memory_account in = {.on_card = 60 * GIB, .budget = 60 * GIB};
	struct memory_account out = {.swapped = 60 * GIB};
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	gpus.at[0].external = 32 * GIB;
	gpus.at[0].sample = 32 * GIB;
	gpus_account(&gpus.at[0], &(struct memory_account){0}, &in, CLOCK_NS_PER_SEC);
	gpus_account(&gpus.at[0], &(struct memory_account){0}, &out, CLOCK_NS_PER_SEC);
	devices[0].used = 92 * GIB;
	for (uint64_t ns = 2 * CLOCK_NS_PER_SEC; ns < 30 * CLOCK_NS_PER_SEC;
	     ns += CLOCK_NS_PER_SEC) {
		gpus_account(&gpus.at[0], &in, &out, ns);
		gpus_account(&gpus.at[0], &out, &in, ns);
		assert_false(gpus_sample(&gpus, 0, ns, 0));
	}
	devices[0].used = 62 * GIB;
	assert_true(gpus_sample(&gpus, 0, 30 * CLOCK_NS_PER_SEC, 0));
	assert_int_equal(gpus.at[0].external, 2 * GIB);
}

/* Nobody has waited meanwhile, so nothing was measured. */
static void what_was_allocated_long_ago_is_there(void **state)
{
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	devices[0].used = 94 * GIB;
	gpus.at[0].external = 30 * GIB;
	gpus.at[0].sample = 30 * GIB;
	account(&gpus, 64 * GIB, 64 * GIB);
	assert_false(gpus_sample(&gpus, 0, 2 * CLOCK_NS_PER_SEC, 0));
	devices[0].used = 66 * GIB;
	assert_true(gpus_sample(&gpus, 0, 60 * CLOCK_NS_PER_SEC, 0));
	assert_int_equal(gpus.at[0].external, 2 * GIB);
}

static void a_rise_counts_when_it_was_seen_twice(void **state)
{
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	gpus.at[0].n_clients = 1;
	devices[0].used = 20 * GIB;
	assert_false(gpus_sample(&gpus, 0, 2 * CLOCK_NS_PER_SEC, 0));
	/* Twice in a moment is once. */
	assert_false(gpus_sample(&gpus, 0, 2 * CLOCK_NS_PER_SEC + 500 * CLOCK_NS_PER_MS, 0));
	assert_int_equal(gpus.at[0].external, 2 * GIB);
	assert_true(gpus_sample(&gpus, 0, 3 * CLOCK_NS_PER_SEC, 0));
	assert_int_equal(gpus.at[0].external, 20 * GIB);
	devices[0].used = GIB;
	assert_true(gpus_sample(&gpus, 0, 4 * CLOCK_NS_PER_SEC, 0));
	assert_int_equal(gpus.at[0].external, GIB);
	/* The last sample is old: it says nothing against the new one. */
	devices[0].used = 50 * GIB;
	assert_true(gpus_sample(&gpus, 0, 60 * CLOCK_NS_PER_SEC, 0));
	assert_int_equal(gpus.at[0].external, 50 * GIB);
}

static void a_rise_that_goes_on_is_followed(void **state)
{
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	gpus.at[0].n_clients = 1;
	for (uint64_t s = 2; s < 10; s++) {
		devices[0].used = 10 * s * GIB;
		(void)gpus_sample(&gpus, 0, s * CLOCK_NS_PER_SEC, 0);
		if (s > 2)
			assert_int_equal(gpus.at[0].external, 10 * (s - 1) * GIB);
	}
}

static void a_rise_counts_at_once_where_no_client_can_have_caused_it(void **state)
{
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	devices[0].used = 20 * GIB;
	assert_true(gpus_sample(&gpus, 0, 2 * CLOCK_NS_PER_SEC, 0));
	assert_int_equal(gpus.at[0].external, 20 * GIB);
}

/* Clients have a budget of 60 GiB, of which nothing tells whether they have used it. */
static void what_nvml_lists_for_others_counts_at_once(void **state)
{
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	gpus.at[0].n_clients = 1;
	account(&gpus, 10 * GIB, 60 * GIB);
	devices[0].used = 42 * GIB;
	gpus.at[0].outside = 20 * GIB;
	assert_true(gpus_sample(&gpus, 0, 2 * CLOCK_NS_PER_SEC, 0));
	assert_int_equal(gpus.at[0].external, 20 * GIB);
	/* More than there is can not be theirs: the list is of a moment ago. */
	devices[0].used = 15 * GIB;
	assert_true(gpus_sample(&gpus, 0, 60 * CLOCK_NS_PER_SEC, 0));
	assert_int_equal(gpus.at[0].external, 5 * GIB);
	account(&gpus, 0, 0);
}

static void leave(struct gpus *gpus, uint64_t bytes, uint64_t now_ns)
{
	const struct memory_account share = {.on_card = bytes, .budget = bytes};

	gpus_leave(&gpus->at[0], &share, now_ns);
	account(gpus, 0, 0);
	gpus->at[0].n_clients = 0;
}

/* Nobody has sampled for a while: the last sample says nothing. */
static void what_a_client_had_that_has_left_is_not_external(void **state)
{
	const uint64_t sec = CLOCK_NS_PER_SEC;
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	account(&gpus, 40 * GIB, 40 * GIB);
	devices[0].used = 42 * GIB;
	leave(&gpus, 40 * GIB, 60 * sec);
	for (uint64_t s = 60; s < 64; s++) {
		(void)gpus_sample(&gpus, 0, s * sec, 0);
		assert_int_equal(gpus.at[0].external, 2 * GIB);
		assert_int_equal(gpus.at[0].gone, 40 * GIB);
	}
	/* A part is free, and then all of it. */
	devices[0].used = 12 * GIB;
	(void)gpus_sample(&gpus, 0, 64 * sec, 0);
	assert_int_equal(gpus.at[0].gone, 10 * GIB);
	devices[0].used = 2 * GIB;
	(void)gpus_sample(&gpus, 0, 64 * sec + sec / 2, 0);
	assert_int_equal(gpus.at[0].gone, 0);
	assert_int_equal(gpus.at[0].external, 2 * GIB);
	/* So what comes now is others', at once. */
	devices[0].used = 12 * GIB;
	(void)gpus_sample(&gpus, 0, 64 * sec + sec * 3 / 4, 0);
	assert_int_equal(gpus.at[0].external, 12 * GIB);
}

static void what_one_leaves_behind_for_good_is_external(void **state)
{
	const uint64_t sec = CLOCK_NS_PER_SEC;
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	account(&gpus, 40 * GIB, 40 * GIB);
	devices[0].used = 42 * GIB;
	leave(&gpus, 40 * GIB, 60 * sec);
	(void)gpus_sample(&gpus, 0, 61 * sec, 0);
	/* What comes meanwhile on top is others'. */
	devices[0].used = 52 * GIB;
	gpus.at[0].outside = 12 * GIB;
	(void)gpus_sample(&gpus, 0, 62 * sec, 0);
	assert_int_equal(gpus.at[0].external, 12 * GIB);
	gpus.at[0].outside = 0;
	(void)gpus_sample(&gpus, 0, 65 * sec, 0);
	assert_int_equal(gpus.at[0].gone, 0);
	assert_int_equal(gpus.at[0].external, 52 * GIB);
	/* A GPU that does not answer keeps nobody waiting for it. */
	leave(&gpus, 40 * GIB, 70 * sec);
	devices[0].error = 15;
	(void)gpus_sample(&gpus, 0, 75 * sec, 0);
	devices[0].error = 0;
	assert_int_equal(gpus.at[0].gone, 0);
}

static void after_a_restart_what_is_used_is_our_clients_own(void **state)
{
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	devices[0].used = 82 * GIB;
	gpus.at[0].external = 82 * GIB; /* as it looks before anybody is back */
	gpus_await_clients(&gpus);
	assert_int_equal(gpus.at[0].external, 0);
	account(&gpus, 80 * GIB, 80 * GIB);
	assert_true(gpus_sample(&gpus, 0, 2 * CLOCK_NS_PER_SEC, 80 * GIB));
	assert_int_equal(gpus.at[0].external, 2 * GIB);
}

/* Its memory counted as others' until it came. */
static void a_client_that_comes_late_takes_its_memory_out_of_external(void **state)
{
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	devices[0].used = 82 * GIB;
	gpus.at[0].external = 82 * GIB;
	gpus.at[0].sample = 82 * GIB;
	account(&gpus, 80 * GIB, 0);
	assert_true(gpus_sample(&gpus, 0, CLOCK_NS_PER_SEC + 1, 80 * GIB));
	assert_int_equal(gpus.at[0].external, 2 * GIB);
}

static void nvml_is_not_asked_too_often_nor_for_noise(void **state)
{
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	devices[0].used = 0;
	assert_false(gpus_sample(&gpus, 0, CLOCK_NS_PER_SEC + 99 * CLOCK_NS_PER_MS, 0));
	assert_true(gpus_sample(&gpus, 0, CLOCK_NS_PER_SEC + 100 * CLOCK_NS_PER_MS, 0));
	devices[0].used = 1000000;
	assert_false(gpus_sample(&gpus, 0, 2 * CLOCK_NS_PER_SEC, 0));
	assert_false(gpus_sample(&gpus, 0, 3 * CLOCK_NS_PER_SEC, 0));
}

static void power_is_a_mean_or_that_of_now(void **state)
{
	const uint64_t sec = CLOCK_NS_PER_SEC;
	struct gpus gpus;

	(void)state;
	start_sampling(&gpus);
	devices[0].mj = 5000000;
	devices[0].mw = 80000;
	assert_int_equal(gpus_power(&gpus, 0, 10 * sec), 80000); /* the first time */
	devices[0].mj += 300000;
	assert_int_equal(gpus_power(&gpus, 0, 10 * sec + sec / 2 - 1), 80000); /* too soon */
	assert_int_equal(gpus_power(&gpus, 0, 11 * sec), 300000);
	devices[0].mj += 600000;
	assert_int_equal(gpus_power(&gpus, 0, 14 * sec), 200000);
	devices[0].mj += 600000;
	assert_int_equal(gpus_power(&gpus, 0, 74 * sec + 1), 80000); /* of too long ago */
	devices[0].mj = 1000; /* the driver has been loaded anew */
	assert_int_equal(gpus_power(&gpus, 0, 75 * sec), 80000);
	devices[0].mj = 0;
	assert_int_equal(gpus_power(&gpus, 0, 76 * sec), 80000);
	devices[0].mj = 9000000; /* a mean since an error would be anything */
	assert_int_equal(gpus_power(&gpus, 0, 77 * sec), 80000);
	devices[0].mj = devices[0].mw = 0;
	assert_int_equal(gpus_power(&gpus, 0, 78 * sec), 0);
	gpus.nvml.device_energy = NULL;
	gpus.nvml.device_power = NULL;
	assert_int_equal(gpus_power(&gpus, 0, 79 * sec), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uuids_are_sixteen_bytes),
		cmocka_unit_test(instances_count_as_gpus_and_lost_devices_do_not),
		cmocka_unit_test(without_nvml_the_first_client_tells_the_size),
		cmocka_unit_test(an_unused_entry_is_given_to_another_gpu),
		cmocka_unit_test(a_gpu_that_appears_later_is_found),
		cmocka_unit_test(nvml_outvotes_clients_and_takes_free_places),
		cmocka_unit_test(a_forgotten_gpu_is_not_found),
		cmocka_unit_test(second_contexts_are_not_external),
		cmocka_unit_test(what_is_doubted_is_in_no_sum),
		cmocka_unit_test(what_the_driver_keeps_of_managed_memory_is_not_external),
		cmocka_unit_test(what_our_clients_report_is_not_external),
		cmocka_unit_test(what_a_client_may_have_is_not_external_before_it_is_reported),
		cmocka_unit_test(what_is_about_to_be_allocated_is_not_taken_out_of_external),
		cmocka_unit_test(what_moves_is_not_about_to_be_allocated),
		cmocka_unit_test(what_was_allocated_long_ago_is_there),
		cmocka_unit_test(after_a_restart_what_is_used_is_our_clients_own),
		cmocka_unit_test(a_client_that_comes_late_takes_its_memory_out_of_external),
		cmocka_unit_test(a_rise_counts_when_it_was_seen_twice),
		cmocka_unit_test(a_rise_that_goes_on_is_followed),
		cmocka_unit_test(a_rise_counts_at_once_where_no_client_can_have_caused_it),
		cmocka_unit_test(what_nvml_lists_for_others_counts_at_once),
		cmocka_unit_test(what_a_client_had_that_has_left_is_not_external),
		cmocka_unit_test(what_one_leaves_behind_for_good_is_external),
		cmocka_unit_test(nvml_is_not_asked_too_often_nor_for_noise),
		cmocka_unit_test(a_second_context_has_limits),
		cmocka_unit_test(memory_on_its_way_is_not_external),
		cmocka_unit_test(a_client_that_finds_the_card_full_shows_what_others_have),
		cmocka_unit_test(power_is_a_mean_or_that_of_now),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
