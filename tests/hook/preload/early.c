/* SPDX-License-Identifier: Apache-2.0 */
/* A library that takes GPU memory as it is loaded, as one with global objects there does. */
#include "../../apps/lib/app.h"

#include <stdio.h>

#define EARLY_BYTES (64u << 20)

__attribute__((constructor)) static void take_early(void)
{
	struct app app;
	CUdeviceptr p;

	app_name = "early";
	app_load(0);
	app_init(&app, 0);
	APP_CALL(cuMemAlloc(&p, EARLY_BYTES));
	puts("early");
	(void)fflush(stdout);
}
