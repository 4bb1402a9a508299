/* SPDX-License-Identifier: Apache-2.0 */

/* A static binary: no loader runs, so the library must not matter to it. */

#include <stdio.h>

int main(void)
{
	puts("static");
	return 0;
}
