/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVSHARE_ORION_H
#define NVSHARE_ORION_H

/*
 * A scheduler inside one process: threads are its clients. Client 0 has high priority, and each
 * other one is best effort: its kernels run beside those of client 0 only where they hardly slow
 * them down, and have the whole GPU while client 0 has no work there. The interface is that of
 * Orion (Strati et al., EuroSys 2024).
 *
 *     orion_start_scheduler(2);
 *     in one thread    orion_set_client_idx(0);
 *     in the other     orion_set_client_idx(1);
 *     ...              all that they submit is scheduled
 *     orion_stop_scheduler();
 *
 * Each call runs in the thread that makes it, on the stream that it names; a best-effort call waits
 * first. Streams, events, captures and results mean what they mean without a scheduler. So clients
 * that use one stream, as CUDA's default stream, follow each other there, and none runs beside
 * client 0: give each client a stream. A thread without an index belongs to the client that last
 * used its stream; on a default stream, or one of nobody, it is best effort.
 *
 * The functions live in libnvshare.so, also named libgpu_scheduler.so. They are weak symbols: NULL
 * unless the library is preloaded or linked. A library that is only loaded, as by ctypes, sees no
 * call of CUDA unless it is preloaded: orion_start_scheduler() fails then.
 *
 * Threading: any thread may call them. They keep errno. A child of fork() has no scheduler and no
 * client. Each returns 0 or one of
 *     -EINVAL    an argument is out of range
 *     -EALREADY  it was called before, and its opposite has not been called since
 *     -ENOTCONN  no scheduler is started
 *     -ENOSYS    the library was loaded too late to see calls of CUDA: preload it
 *     -ENOMEM
 * unless it says otherwise. Their names and arguments are those of published programs.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef NVSHARE_IS_LIBRARY
#define ORION_API __attribute__((visibility("default")))
#else
#define ORION_API __attribute__((weak))
#endif

#define ORION_CLIENTS_MAX    63
#define ORION_NO_CLIENT      (-1)
#define ORION_LATENCY_MS_MAX 60000.0f

/*
 * Starts the scheduler for clients 0 to num_clients - 1, 1 to ORION_CLIENTS_MAX of them, and takes
 * their calls from now on: orion_init() is part of it. Work that was submitted before is not waited
 * for. A failure prints one line that says why.
 */
ORION_API int orion_start_scheduler(int num_clients);

/*
 * Waits until all that clients have asked for is submitted, then ends the scheduler. Their threads
 * go on without it, and their work keeps its order.
 */
ORION_API int orion_stop_scheduler(void);

/*
 * How long a request of client 0 takes, in milliseconds, above 0 to ORION_LATENCY_MS_MAX: best
 * effort may delay it by dur_threshold_ratio of that. May be called at any time; without it 10 ms
 * count.
 */
ORION_API int orion_set_hp_latency(float latency_ms);

/* The part of orion_start_scheduler() that takes calls, without a schedule: all goes at once. */
ORION_API int orion_init(int num_clients);
ORION_API int orion_shutdown(void);

/* The client of this thread; ORION_NO_CLIENT: none any more. May be set before the start. */
ORION_API int orion_set_client_idx(int idx);
ORION_API int orion_get_client_idx(void);

/* 0: everything passes as if there was no scheduler, until it is enabled again. */
ORION_API int orion_set_enabled(int enabled);
ORION_API int orion_is_enabled(void); /* 1 or 0 */

/*
 * Profiles of kernels: they are learned while programs run, so none has to be loaded. A file adds
 * to what is known: it is read as a whole, or -EINVAL and one line name what is wrong with it; the
 * codes of open() stand for files that cannot be read or written.
 */
ORION_API int orion_load_profile(const char *filepath);
ORION_API int orion_start_profiling(const char *model_name);
ORION_API int orion_end_profiling(const char *output_path);

struct orion_stats {
	uint64_t hp_ops_scheduled;
	uint64_t be_ops_scheduled;
	uint64_t be_ops_rejected; /* that had to wait, each once */
	uint64_t total_wait_time_us;
};

/* size: sizeof(*ret); the library zeroes fields that only a later header has. */
ORION_API int orion_get_stats(struct orion_stats *ret, size_t size);

struct orion_config {
	float sm_threshold_ratio;  /* 0.5: above 0 to 1, of the multiprocessors, for best effort */
	float dur_threshold_ratio; /* 0.025: above 0 to 1, of hp_request_latency_ms */
	float hp_request_latency_ms; /* 10: as orion_set_hp_latency() */
	int32_t poll_interval_us;    /* 10: 1 to 1000000, how often completed work is looked for */
	int32_t interference_aware;  /* 1: no kernel of the same known class runs beside client 0's
				      */
	int32_t device_id;           /* 0: the CUDA ordinal */
	int32_t num_sms;             /* of that GPU: read, not set; 0: not known yet */
};

/* set: before the start, else -EALREADY. size: as above; fields of a later header keep their
 * values. */
ORION_API int orion_get_config(struct orion_config *ret, size_t size);
ORION_API int orion_set_config(const struct orion_config *config, size_t size);

#ifdef __cplusplus
}
#endif

#endif
