/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_FAIL_H
#define NVS_SIMGPU_CUDA_FAIL_H

/*
 * Failures on demand: NVSHARE_SIM_FAIL is a list of name:N:what[:always], separated by
 * commas. At the Nth call of that name in the process (from then on, with "always")
 * happens what is asked for:
 *
 *   a number     the call does nothing and returns it: a CUresult, for rm_* a status
 *   errno:N      rm_* only: the ioctl fails with that errno
 *   lie          rm_disable, rm_enable and rm_timeslice only: status 0, and nothing is done
 *   kill, term   the process sends itself SIGKILL or SIGTERM,
 *   stop         or SIGSTOP; the call goes on if the process does
 *   hang:MS      the call takes so many milliseconds longer
 *
 * Names are those of the driver's functions, without _v2, _ptsz and the like, and
 * rm_alloc, rm_disable, rm_enable and rm_timeslice for the resource manager's requests.
 */

#include "abi/cuda_abi.h"

enum fail_what {
	FAIL_NOTHING, /* go on */
	FAIL_RESULT,  /* return code */
	FAIL_ERRNO,   /* fail with errno code */
	FAIL_LIE,     /* say yes and do nothing */
};

struct fail_order {
	enum fail_what what;
	int code;
};

void fail_init(void); /* reads the environment, once */
/* Counts a call; sends the signals and sleeps the time that were ordered. No lock held. */
struct fail_order fail_order(const char *name);
/* The same for a function of the driver: CUDA_SUCCESS is "go on". */
CUresult fail_check(const char *name);

#endif
