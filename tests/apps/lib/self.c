/* SPDX-License-Identifier: Apache-2.0 */
#include "self.h"

#include "hook/freeze/channels.h"
#include "hook/freeze/freeze.h"
#include "hook/table/load.h"

#include <time.h>

/* The watchdog's limit: much longer than any limit of the callers. */
#define SELF_LIMIT_NS 20000000000u

enum { SELF_JOIN_SEC = 30 };

static void check_freeze(int r, const char *what)
{
	const char *why = freeze_why_not();

	if (r)
		app_exit(r == FREEZE_E_OFF ? APP_EXIT_SKIPPED : APP_EXIT_WRONG, "%s: %d (%s)", what,
			 r, why ? why : "no reason known");
}

int self_prove(struct app *app)
{
	int r = FREEZE_E_BUSY;

	for (int i = 0; i < 50 && r == FREEZE_E_BUSY; i++) {
		if (i > 0)
			app_sleep_ms(20);
		r = freeze_prove(app->dev, app->ctx);
	}
	return r;
}

void self_init(struct app *app, CUcontext *ret_own)
{
	app_load(0);
	if (!load_driver())
		app_exit(APP_EXIT_SKIPPED, "no CUDA driver");
	channels_device_begin(0);
	app_init(app, 0);
	channels_device_end();
	if (freeze_why_not())
		app_exit(APP_EXIT_SKIPPED, "can not freeze here: %s", freeze_why_not());
	check_freeze(self_prove(app), "freeze_prove");
	channels_own_begin();
	APP_CALL(cuCtxCreate(ret_own, 0, app->dev));
	channels_own_end();
	APP_CALL(cuCtxSetCurrent(app->ctx));
}

void self_freeze(void)
{
	int r;

	while ((r = freeze_begin(SELF_LIMIT_NS)) == FREEZE_E_BUSY)
		app_sleep_ms(1);
	check_freeze(r, "freeze_begin");
}

void self_thaw(void)
{
	check_freeze(freeze_end(), "freeze_end");
}

void self_join(pthread_t thread, const char *what)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += SELF_JOIN_SEC;
	if (pthread_timedjoin_np(thread, NULL, &end))
		app_exit(APP_EXIT_WRONG, "%s: hangs after the last thaw", what);
}
