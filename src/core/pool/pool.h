/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_POOL_H
#define NVS_CORE_POOL_H

/*
 * One pool of host memory for the clients of a node, in slabs of one size: which slab is lent to
 * whom, who may make more, who is asked to return some, and what becomes of a dead client's slabs.
 *
 * A slab goes only to clients of the domain that has written to it. A client's domain is read by
 * the caller whenever the client speaks; a slab whose borrower has another domain by then is lent
 * to nobody any more.
 *
 * The caller keeps the descriptors by slab. After each call it closes the slabs that pool_leaving()
 * names, and tells borrowers what pool_ask() says.
 *
 * Pure. Ownership: struct pool is the caller's, and holds no pointer. Threading: none.
 */

#include <stdbool.h>
#include <stdint.h>

#define POOL_SLABS_MAX     4096
#define POOL_BORROWERS_MAX 1024
#define POOL_WANT_MAX      2048 /* slabs at once */
#define POOL_OFFER_MAX     64

#define POOL_NONE UINT32_MAX

enum pool_slab_state {
	POOL_SLAB_FREE,    /* no slab */
	POOL_SLAB_READY,   /* kept, and lent to nobody */
	POOL_SLAB_LENT,    /* mapped by its borrower, for all that is known */
	POOL_SLAB_LEAVING, /* counts no more; the caller is to close it */
};

enum pool_borrower_state {
	POOL_BORROWER_FREE,
	POOL_BORROWER_ACTIVE,
	POOL_BORROWER_CUT, /* it cannot speak any more, and may still have its slabs mapped */
};

struct pool_slab {
	uint32_t borrower; /* LENT */
	uint32_t node;     /* NUMA */
	uint32_t domain;   /* POOL_NONE: it is lent to nobody any more */
	uint32_t user;     /* for which it counts */
	uint8_t state;     /* enum pool_slab_state */
};

struct pool_borrower {
	uint64_t process; /* the same for all borrowers of one process, and for no others */
	uint32_t user;
	uint32_t domain; /* when it spoke last; POOL_NONE: it has none */
	uint32_t n_lent;
	uint32_t n_promised; /* it may make so many */
	uint32_t n_lacked;   /* of its last want */
	uint32_t n_unused;   /* of n_lent, as it tells */
	uint32_t n_asked;    /* others lack so many of them */
	uint32_t n_told;     /* the same, as it was told last */
	bool is_trusted;     /* its user may have as many slabs as there are */
	uint8_t state;       /* enum pool_borrower_state */
};

struct pool {
	uint32_t n_slabs_max;     /* that the caller can keep */
	uint32_t n_borrowers_max; /* the same */
	uint32_t n_ready;
	uint32_t n_lent;
	uint32_t n_promised;
	uint32_t n_leaving;
	uint32_t n_lacked;
	uint32_t n_borrowers;         /* active and cut */
	uint32_t slabs_used;          /* slabs from here on have never been used */
	bool is_stale;                /* who is asked for what has to be found out anew */
	bool is_asked;                /* somebody is asked for some */
	bool is_asking;               /* somebody may be still to be told */
	uint64_t ids[POOL_SLABS_MAX]; /* by slab; 0: none */
	struct pool_slab slabs[POOL_SLABS_MAX];
	struct pool_borrower borrowers[POOL_BORROWERS_MAX];
};

/* How many more slabs there may be, as the caller finds at the moment. */
struct pool_room {
	uint32_t n_more; /* of all together: memory */
	uint32_t n_own;  /* for this borrower: memory of its control groups */
};

/* The answer to a client; the three numbers add up to what it wants. */
struct pool_answer {
	uint32_t n_lent;
	uint32_t n_make;
	uint32_t n_none;
	uint32_t slabs[POOL_WANT_MAX];
};

enum {
	POOL_E_SUCCESS_,
	POOL_E_FULL, /* this user has as many borrowers as others leave it */
};

/* pool: zeroed. At most POOL_SLABS_MAX and POOL_BORROWERS_MAX; 0: none. */
void pool_init(struct pool *pool, uint32_t n_slabs_max, uint32_t n_borrowers_max);

/* A new borrower. 0 or POOL_E_FULL. */
int pool_join(struct pool *pool, uint64_t process, uint32_t user, bool is_trusted,
	      uint32_t *ret_borrower);

/* The domain of an active borrower, before anything else that it says; POOL_NONE: it has none. */
void pool_domain(struct pool *pool, uint32_t borrower, uint32_t domain);

/* n: 1 to POOL_WANT_MAX. Replaces what it lacked. */
void pool_want(struct pool *pool, uint32_t borrower, uint32_t n, uint32_t node,
	       const struct pool_room *room, struct pool_answer *ret);

/*
 * It has slab id on loan, and hands a descriptor over. Returns the slab that keeps the descriptor;
 * POOL_NONE: it is not needed, because the slab is known, or is not kept.
 */
uint32_t pool_offer(struct pool *pool, uint32_t borrower, uint64_t id, uint32_t node);

/* It has given back slab id; is_bad: nobody can use it. Unknown ids are ignored. */
void pool_return(struct pool *pool, uint32_t borrower, uint64_t id, bool is_bad);

void pool_unmade(struct pool *pool, uint32_t borrower, uint32_t n);
void pool_unused(struct pool *pool, uint32_t borrower, uint32_t n_slabs);

/* It speaks no more. */
void pool_cut(struct pool *pool, uint32_t borrower);

/* Nothing can use its slabs any more: it is free now, and they are ready. From each state. */
void pool_gone(struct pool *pool, uint32_t borrower);

/* Slabs beyond n (of those that exist or may be made) leave, as far as they are ready. */
void pool_shrink(struct pool *pool, uint32_t n);

/* Nobody lacks slabs any more. */
void pool_forget_lacks(struct pool *pool);

/* The next slab to be closed, which is free from then on. POOL_NONE: none. */
uint32_t pool_leaving(struct pool *pool);

/* The next borrower to be told how many slabs others lack. POOL_NONE: none. */
uint32_t pool_ask(struct pool *pool, uint32_t *ret_n);

/* Slabs that exist or may be made. */
static inline uint32_t pool_total(const struct pool *pool)
{
	return pool->n_ready + pool->n_lent + pool->n_promised;
}

/* Whether a kept slab or a borrower is of domain. */
bool pool_has_domain(const struct pool *pool, uint32_t domain);

/* Asserts every invariant. */
void pool_assert_valid(const struct pool *pool);

#endif
