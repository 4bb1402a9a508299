/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_HELPER_H
#define NVS_DAEMON_HELPER_H

/*
 * The helper: a process of the scheduler's that makes NVML's slow and waiting calls. A call that
 * hangs in the driver hangs the helper, and not the loop.
 *
 * The two ends speak over a SOCK_SEQPACKET pair. Each packet is one of the structs below. The
 * scheduler asks, and the helper reports each device and then HELPER_REPORT_END. Errors are
 * reported whenever they come. The helper ends with the scheduler's end of the pair.
 */

#include <stdbool.h>
#include <stdint.h>

#define HELPER_OPTION      "--nvml-helper"
#define HELPER_MAGIC       0x48564e4eu
#define HELPER_DEVICES_MAX 16

struct helper_question {
	uint32_t magic;
	uint32_t seq;   /* the reports repeat it */
	uint32_t lists; /* 1: look for new devices first */
	uint32_t unused;
};

enum helper_report_kind {
	HELPER_REPORT_GPU,   /* a device's state: an answer */
	HELPER_REPORT_END,   /* of the answer */
	HELPER_REPORT_ERROR, /* an error of a device: xid */
	HELPER_REPORT_COUNT_
};

enum helper_outcome { HELPER_GOOD, HELPER_LOST, HELPER_FAILED, HELPER_OUTCOME_COUNT_ };

/* helper_report::known */
#define HELPER_KNOWS_TEMPERATURE (1u << 0)
#define HELPER_KNOWS_UTILIZATION (1u << 1)
#define HELPER_KNOWS_POWER       (1u << 2)
#define HELPER_KNOWS_ENERGY      (1u << 3)
#define HELPER_KNOWS_PROCESSES   (1u << 4)
#define HELPER_KNOWS_MIG         (1u << 5)
#define HELPER_KNOWS_ALL         63u

struct helper_report {
	uint32_t magic;
	uint32_t kind; /* enum helper_report_kind */
	uint32_t seq;
	uint32_t n; /* END: devices of the answer */
	uint8_t uuid[16];
	uint32_t outcome; /* enum helper_outcome */
	uint32_t xid;     /* ERROR; 0: an ECC error */
	uint32_t known;   /* HELPER_KNOWS_* */
	uint32_t celsius;
	uint32_t utilization_percent;
	uint32_t n_processes;
	uint32_t is_mig;
	uint32_t unused;
	uint64_t used; /* bytes */
	uint64_t total;
	uint64_t power_mw;
	uint64_t energy_mj;
};

/* Serves fd until its other end is closed. Returns the exit code. Starts one thread. */
int helper_main(int fd);

/* Whether bytes are one report that makes sense. */
bool helper_report_decode(const void *bytes, uint64_t len, struct helper_report *ret_report);

#endif
