/* SPDX-License-Identifier: Apache-2.0 */
#include "core/orion/kernel_profile.h"

#include "core/u64.h"

#include <assert.h>
#include <string.h>

#define WARP     32u
#define NO_SLOT  LIST_END
#define CUT_MARK "..."
#define USED(profiles) \
	((struct list_slots){&(profiles)->entries[0].link, sizeof(struct kernel_profile_entry)})

/* ---- names and keys --------------------------------------------------------- */

void kernel_profile_name_set(struct kernel_profile_name *name, const char *text, size_t len)
{
	static const char digits[] = "0123456789abcdef";
	size_t at = 0, cut = 0;

	*name = (struct kernel_profile_name){"-"};
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];
		char escaped[4] = {'\\', 'x', digits[c >> 4], digits[c & 15]};
		bool is_plain = c >= ' ' && c <= '~' && c != '\\';
		size_t n = is_plain ? 1 : sizeof(escaped);

		if (at + n >= sizeof(name->text)) {
			memset(name->text + cut, 0, sizeof(name->text) - cut);
			memcpy(name->text + cut, CUT_MARK, sizeof(CUT_MARK) - 1);
			return;
		}
		memcpy(name->text + at, is_plain ? &text[i] : escaped, n);
		at += n;
		/* The mark stands behind whole characters. */
		if (at + sizeof(CUT_MARK) <= sizeof(name->text))
			cut = at;
	}
}

static uint64_t kernel_profile_fnv(uint64_t hash, unsigned char byte)
{
	return (hash ^ byte) * 0x100000001b3ull;
}

uint64_t kernel_profile_hash(const char *name, size_t len)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < len; i++)
		hash = kernel_profile_fnv(hash, (unsigned char)name[i]);
	return hash;
}

static uint64_t kernel_profile_blocks(uint64_t blocks)
{
	uint64_t step;

	blocks = u64_min(u64_max(blocks, 1), KERNEL_PROFILE_BLOCKS_MAX);
	if (blocks < 8)
		return blocks;
	step = 1ull << (61 - __builtin_clzll(blocks));
	return (blocks + step - 1) & ~(step - 1);
}

static uint32_t kernel_profile_threads(uint32_t threads)
{
	threads = (uint32_t)u64_min(u64_max(threads, 1), KERNEL_PROFILE_THREADS_MAX);
	return (threads + WARP - 1) / WARP * WARP;
}

uint64_t kernel_profile_key(uint64_t hash, uint64_t blocks, uint32_t threads)
{
	blocks = kernel_profile_blocks(blocks);
	for (int i = 0; i < 64; i += 8)
		hash = kernel_profile_fnv(hash, (unsigned char)(blocks >> i));
	return kernel_profile_fnv(hash, (unsigned char)(kernel_profile_threads(threads) / WARP));
}

/* ---- the table -------------------------------------------------------------- */

void kernel_profiles_init(struct kernel_profiles *profiles, struct kernel_profile_entry *entries,
			  uint32_t n, const struct kernel_class_card *card)
{
	assert(n > 0);
	*profiles = (struct kernel_profiles){.card = *card, .entries = entries, .n_entries = n};
	list_init(&profiles->used);
	for (uint32_t i = 0; i < n; i++) {
		entries[i] = (struct kernel_profile_entry){.next = NO_SLOT, .bucket = NO_SLOT};
	}
}

/* The first slot of the keys with this hash. They are mixed, as FNV's last byte reaches few bits.
 */
static uint32_t *kernel_profiles_bucket(const struct kernel_profiles *profiles, uint64_t key)
{
	uint64_t mixed = (key ^ key >> 32) * 0x9e3779b97f4a7c15ull;

	return &profiles->entries[(mixed >> 32) % profiles->n_entries].bucket;
}

static uint32_t kernel_profiles_slot(const struct kernel_profiles *profiles, uint64_t key)
{
	uint32_t slot = *kernel_profiles_bucket(profiles, key);

	while (slot != NO_SLOT && profiles->entries[slot].profile.key != key)
		slot = profiles->entries[slot].next;
	return slot;
}

static void kernel_profiles_unlink(struct kernel_profiles *profiles, uint32_t slot)
{
	uint32_t *at = kernel_profiles_bucket(profiles, profiles->entries[slot].profile.key);

	while (*at != slot)
		at = &profiles->entries[*at].next;
	*at = profiles->entries[slot].next;
	list_remove(USED(profiles), &profiles->used, slot);
}

/* The slot is free, or its old profile is unlinked. The caller puts it into the list. */
static void kernel_profiles_set(struct kernel_profiles *profiles, uint32_t slot,
				const struct kernel_profile *profile)
{
	uint32_t *bucket = kernel_profiles_bucket(profiles, profile->key);

	profiles->entries[slot].profile = *profile;
	profiles->entries[slot].next = *bucket;
	*bucket = slot;
}

const struct kernel_profile *kernel_profiles_find(struct kernel_profiles *profiles, uint64_t key)
{
	uint32_t slot = kernel_profiles_slot(profiles, key);

	if (slot == NO_SLOT)
		return NULL;
	list_remove(USED(profiles), &profiles->used, slot);
	list_push_back(USED(profiles), &profiles->used, slot);
	return &profiles->entries[slot].profile;
}

/* ---- learning and merging --------------------------------------------------- */

/* A profile of one launch. */
static struct kernel_profile kernel_profile_of(const struct kernel_class_card *card,
					       const struct kernel_profile_launch *launch)
{
	uint64_t ns = u64_min(u64_max(launch->work.duration_ns, 1), KERNEL_PROFILE_NS_MAX);

	return (struct kernel_profile){
		.key = launch->key,
		.blocks = kernel_profile_blocks(launch->blocks),
		.threads = kernel_profile_threads(launch->threads),
		.sms = (uint32_t)u64_min(u64_max(launch->work.sms, 1), KERNEL_PROFILE_SMS_MAX),
		.mean_ns = ns,
		.min_ns = ns,
		.count = 1,
		.bytes = u64_min(launch->work.bytes, KERNEL_PROFILE_BYTES_MAX),
		.class = kernel_class_of(card, &launch->work),
	};
}

/* The mean of weighted values, to the nearest. No sum overflows: 10^12 ns, 2 * 10^6 measurements.
 */
static uint64_t kernel_profile_mean(uint64_t a, uint64_t weight_a, uint64_t b, uint64_t weight_b)
{
	uint64_t weight = weight_a + weight_b;

	return (a * weight_a + b * weight_b + weight / 2) / weight;
}

const struct kernel_profile *kernel_profiles_learn(struct kernel_profiles *profiles,
						   const struct kernel_profile_launch *launch)
{
	struct kernel_profile new = kernel_profile_of(&profiles->card, launch), *p;
	uint32_t slot = kernel_profiles_slot(profiles, launch->key);

	if (slot == NO_SLOT) {
		kernel_profile_name_set(&new.name, launch->name, launch->name_len);
		slot = profiles->used.n;
		if (slot == profiles->n_entries) {
			slot = profiles->used.first;
			kernel_profiles_unlink(profiles, slot);
		}
		kernel_profiles_set(profiles, slot, &new);
		list_push_back(USED(profiles), &profiles->used, slot);
		return &profiles->entries[slot].profile;
	}
	(void)kernel_profiles_find(profiles, launch->key);
	p = &profiles->entries[slot].profile;
	p->mean_ns = kernel_profile_mean(p->mean_ns, u64_min(p->count, KERNEL_PROFILE_WINDOW - 1),
					 new.mean_ns, 1);
	p->min_ns = u64_min(p->min_ns, new.min_ns);
	p->count += p->count < KERNEL_PROFILE_COUNT_MAX;
	p->sms = (uint32_t)u64_max(p->sms, new.sms);
	if (new.bytes > 0)
		p->bytes = new.bytes;
	if (new.class != KERNEL_CLASS_UNKNOWN)
		p->class = new.class;
	return p;
}

static enum kernel_class kernel_profile_agree(enum kernel_class a, enum kernel_class b)
{
	if (a == KERNEL_CLASS_UNKNOWN)
		return b;
	return b == KERNEL_CLASS_UNKNOWN || a == b ? a : KERNEL_CLASS_UNKNOWN;
}

bool kernel_profiles_add(struct kernel_profiles *profiles, const struct kernel_profile *profile)
{
	uint32_t slot = kernel_profiles_slot(profiles, profile->key);
	struct kernel_profile *p;

	if (slot == NO_SLOT) {
		slot = profiles->used.n;
		if (slot == profiles->n_entries)
			return false;
		kernel_profiles_set(profiles, slot, profile);
		list_push_front(USED(profiles), &profiles->used, slot);
		return true;
	}
	p = &profiles->entries[slot].profile;
	p->mean_ns = kernel_profile_mean(p->mean_ns, p->count, profile->mean_ns, profile->count);
	p->min_ns = u64_min(p->min_ns, profile->min_ns);
	p->count = (uint32_t)u64_min(p->count + profile->count, KERNEL_PROFILE_COUNT_MAX);
	p->sms = (uint32_t)u64_max(p->sms, profile->sms);
	p->bytes = u64_max(p->bytes, profile->bytes);
	p->class = kernel_profile_agree(p->class, profile->class);
	return true;
}

uint32_t kernel_profiles_merge(struct kernel_profiles *profiles, const struct kernel_profiles *from)
{
	uint32_t n_left_out = 0;

	for (uint32_t i = 0; i < from->used.n; i++)
		n_left_out += !kernel_profiles_add(profiles, &from->entries[i].profile);
	return n_left_out;
}

static void kernel_profile_assert_valid(const struct kernel_profile *p)
{
	size_t len = 0;

	while (len < sizeof(p->name.text) && p->name.text[len]) {
		assert(p->name.text[len] >= ' ' && p->name.text[len] <= '~');
		len++;
	}
	assert(len > 0 && len < sizeof(p->name.text));
	for (; len < sizeof(p->name.text); len++)
		assert(p->name.text[len] == 0);
	assert(u64_is_within(p->blocks, 1, KERNEL_PROFILE_BLOCKS_MAX));
	assert(u64_is_within(p->threads, 1, KERNEL_PROFILE_THREADS_MAX));
	assert(u64_is_within(p->sms, 1, KERNEL_PROFILE_SMS_MAX));
	assert(u64_is_within(p->mean_ns, p->min_ns, KERNEL_PROFILE_NS_MAX));
	assert(p->min_ns > 0);
	assert(u64_is_within(p->count, 1, KERNEL_PROFILE_COUNT_MAX));
	assert(p->bytes <= KERNEL_PROFILE_BYTES_MAX);
	assert(p->class < KERNEL_CLASS_COUNT_);
}

void kernel_profiles_assert_valid(const struct kernel_profiles *profiles)
{
	uint32_t n_listed = 0, n_chained = 0;

	assert(profiles->used.n <= profiles->n_entries);
	for (uint32_t i = profiles->used.first; i != LIST_END; i = profiles->entries[i].link.next) {
		n_listed++;
		assert(i < profiles->used.n && n_listed <= profiles->used.n);
		assert(kernel_profiles_slot(profiles, profiles->entries[i].profile.key) == i);
		kernel_profile_assert_valid(&profiles->entries[i].profile);
	}
	for (uint32_t b = 0; b < profiles->n_entries; b++) {
		uint32_t i = profiles->entries[b].bucket;

		for (; i != NO_SLOT; i = profiles->entries[i].next) {
			n_chained++;
			assert(i < profiles->used.n && n_chained <= profiles->used.n);
		}
	}
	assert(n_listed == profiles->used.n && n_chained == n_listed);
}
