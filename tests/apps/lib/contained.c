/* SPDX-License-Identifier: Apache-2.0 */

/* For a program that contains the library's code: all its calls of CUDA go there. */

#include "hook/orion/orion_private.h"

bool orion_sees_calls(void)
{
	return true;
}
