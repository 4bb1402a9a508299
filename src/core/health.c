/* SPDX-License-Identifier: Apache-2.0 */
#include "core/health.h"

#include <stddef.h>

/*
 * The first six are those that NVIDIA's Kubernetes device plugin ignores, because an application
 * causes them ("applicationErrorXids" in its health check). After the fatal ones, NVIDIA's "XID
 * Errors" names a reset of the GPU or a restart of the machine as the next step. Each other Xid
 * counts as serious, as in the plugin.
 */
static const struct {
	uint32_t xid;
	enum health_xid kind;
	const char *text;
} xids[] = {
	{13, HEALTH_XID_PROGRAM, "a program's kernel has failed"},
	{31, HEALTH_XID_PROGRAM, "a program used a wrong address"},
	{43, HEALTH_XID_PROGRAM, "a program's work was ended"},
	{45, HEALTH_XID_PROGRAM, "a program's channels were removed"},
	{68, HEALTH_XID_PROGRAM, "a program's video work has failed"},
	{109, HEALTH_XID_PROGRAM, "a program's work did not leave the GPU in time"},
	{0, HEALTH_XID_SERIOUS, "an ECC error that cannot be corrected"},
	{48, HEALTH_XID_SERIOUS, "an ECC error that cannot be corrected"},
	{63, HEALTH_XID_SERIOUS, "a row of memory is to be replaced"},
	{74, HEALTH_XID_SERIOUS, "an error of NVLink"},
	{94, HEALTH_XID_SERIOUS, "an ECC error that was contained"},
	{64, HEALTH_XID_FATAL, "a row of memory could not be replaced"},
	{79, HEALTH_XID_FATAL, "the GPU has fallen off the bus"},
	{95, HEALTH_XID_FATAL, "an ECC error that was not contained"},
	{119, HEALTH_XID_FATAL, "the GPU's own processor does not answer"},
	{120, HEALTH_XID_FATAL, "the GPU's own processor has failed"},
	{140, HEALTH_XID_FATAL, "an ECC error without recovery"},
};

enum health_xid health_xid_kind(uint32_t xid)
{
	for (size_t i = 0; i < sizeof(xids) / sizeof(xids[0]); i++) {
		if (xids[i].xid == xid)
			return xids[i].kind;
	}
	return HEALTH_XID_SERIOUS;
}

const char *health_xid_text(uint32_t xid)
{
	for (size_t i = 0; i < sizeof(xids) / sizeof(xids[0]); i++) {
		if (xids[i].xid == xid)
			return xids[i].text;
	}
	return "an error of the driver";
}

bool health_is_out(const struct health *health)
{
	return health->state == HEALTH_ERROR || health->state == HEALTH_LOST;
}

static void health_set(struct health *health, enum health_state state, uint64_t now_ns)
{
	if (health->state != state)
		health->since_ns = now_ns;
	health->state = state;
}

static enum health_news health_on_xid(struct health *health, uint32_t xid, uint64_t now_ns)
{
	enum health_xid kind = health_xid_kind(xid);
	bool is_told = health->is_told && (health->xid || !xid);

	if (kind == HEALTH_XID_PROGRAM)
		return HEALTH_NEWS_PROGRAM;
	health->xid = xid;
	health->error_ns = now_ns;
	health->n_good = 0;
	health->is_told = true;
	/* A lost GPU often has further errors, which tell nothing new. */
	if (health->state == HEALTH_LOST)
		return is_told ? HEALTH_NEWS_NONE : HEALTH_NEWS_LOST;
	health->was_lost = false;
	health_set(health, kind == HEALTH_XID_FATAL ? HEALTH_LOST : HEALTH_ERROR, now_ns);
	return kind == HEALTH_XID_FATAL ? HEALTH_NEWS_LOST : HEALTH_NEWS_ERROR;
}

/* A poll may find the GPU lost before the driver says why. So it is told with the second poll. */
static enum health_news health_on_lost(struct health *health, uint64_t now_ns)
{
	bool was_told = health->is_told;

	if (!health_is_out(health))
		health->xid = 0;
	health->n_good = 0;
	health->was_lost = true;
	health->is_told = health->state == HEALTH_LOST;
	health_set(health, HEALTH_LOST, now_ns);
	return health->is_told && !was_told ? HEALTH_NEWS_LOST : HEALTH_NEWS_NONE;
}

static enum health_news health_on_good(struct health *health, uint64_t now_ns)
{
	bool was_out = health_is_out(health);

	if (health->n_good < HEALTH_GOOD_POLLS)
		health->n_good++;
	if (was_out && (health->n_good < HEALTH_GOOD_POLLS ||
			(!health->was_lost && now_ns - health->error_ns < HEALTH_QUIET_NS)))
		return HEALTH_NEWS_NONE;
	health->was_lost = false;
	health_set(health, HEALTH_GOOD, now_ns);
	return was_out && health->is_told ? HEALTH_NEWS_BACK : HEALTH_NEWS_NONE;
}

enum health_news health_step(struct health *health, enum health_input input, uint32_t xid,
			     uint64_t now_ns)
{
	switch (input) {
	case HEALTH_POLL_GOOD:
		return health_on_good(health, now_ns);
	case HEALTH_POLL_LOST:
		return health_on_lost(health, now_ns);
	case HEALTH_XID:
		return health_on_xid(health, xid, now_ns);
	case HEALTH_POLL_FAILED:
		health->n_good = 0;
		break;
	case HEALTH_BLIND:
		/* A GPU that is out stays out until it answers. */
		if (!health_is_out(health))
			health_set(health, HEALTH_UNKNOWN, now_ns);
		health->n_good = 0;
		break;
	case HEALTH_INPUT_COUNT_:
		break;
	}
	return HEALTH_NEWS_NONE;
}
