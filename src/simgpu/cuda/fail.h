/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_FAIL_H
#define NVS_SIMGPU_CUDA_FAIL_H

/*
 * Failures on demand: NVSHARE_SIM_FAIL is a list of name:N:what[:always], separated by
 * commas. what happens at the Nth call of that name in the process; with "always", at each call
 * from the Nth on:
 *
 *   a number     the call does nothing and returns the number: a CUresult; rm_*: a status
 *   errno:N      rm_* only: the ioctl fails with this errno
 *   lie          rm_disable, rm_enable and rm_timeslice only: status 0, but nothing happens
 *   kill, term   the process sends itself SIGKILL or SIGTERM,
 *   stop         or SIGSTOP; the call goes on if the process does
 *   hang:MS      the call takes MS milliseconds longer
 *
 * Names are those of the driver's functions, without _v2, _ptsz and the like, and
 * rm_alloc, rm_disable, rm_enable and rm_timeslice for the resource manager's requests.
 */

#include "abi/cuda_abi.h"

enum fail_what {
	FAIL_NOTHING, /* go on */
	FAIL_RESULT,  /* return code */
	FAIL_ERRNO,   /* fail with errno code */
	FAIL_LIE,     /* report success, and do nothing */
};

struct fail_order {
	enum fail_what what;
	int code;
};

void fail_init(void); /* reads the environment, once */
/* Counts a call. Sends an ordered signal, and sleeps an ordered time. No lock held. */
struct fail_order fail_order(const char *name);
/* The same for a driver's function. CUDA_SUCCESS: go on. */
CUresult fail_check(const char *name);

#endif
