/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_NVML_H
#define NVS_DAEMON_NVML_H

/*
 * The part of NVML that the scheduler uses, opened at run time. A node without NVML works, too. A
 * MIG instance is a device like any other.
 *
 * The calls enter the driver and may block. They usually take well under a millisecond.
 */

#include <stdbool.h>
#include <stdint.h>

struct nvml_device_st;
struct nvml_event_set_st;

struct nvml {
	void *handle; /* NULL: not there */
	int (*shutdown)(void);
	int (*device_count)(unsigned int *count);
	int (*device_handle)(unsigned int index, struct nvml_device_st **device);
	int (*device_name)(struct nvml_device_st *device, char *name, unsigned int length);
	int (*device_uuid)(struct nvml_device_st *device, char *uuid, unsigned int length);
	int (*device_memory)(struct nvml_device_st *device, void *memory);
	/* NULL where the driver is too old to know these, or MIG */
	int (*pcie_generation)(struct nvml_device_st *device, unsigned int *generation);
	int (*pcie_lanes)(struct nvml_device_st *device, unsigned int *lanes);
	int (*c2c_mode)(struct nvml_device_st *device, void *mode);
	int (*field_values)(struct nvml_device_st *device, int n, void *values);
	int (*device_energy)(struct nvml_device_st *device, unsigned long long *mj);
	int (*device_power)(struct nvml_device_st *device, unsigned int *mw);
	int (*compute_processes)(struct nvml_device_st *device, unsigned int *n, void *processes);
	int (*graphics_processes)(struct nvml_device_st *device, unsigned int *n, void *processes);
	int (*device_temperature)(struct nvml_device_st *device, int sensor, unsigned int *celsius);
	int (*device_utilization)(struct nvml_device_st *device, void *utilization);
	int (*gpu_instance)(struct nvml_device_st *device, unsigned int *id);
	int (*event_set_create)(struct nvml_event_set_st **set);
	int (*event_register)(struct nvml_device_st *device, unsigned long long types,
			      struct nvml_event_set_st *set);
	int (*event_wait)(struct nvml_event_set_st *set, void *data, unsigned int timeout_ms);
	int (*mig_mode)(struct nvml_device_st *device, unsigned int *current,
			unsigned int *pending);
	int (*mig_count)(struct nvml_device_st *device, unsigned int *count);
	int (*mig_handle)(struct nvml_device_st *device, unsigned int index,
			  struct nvml_device_st **mig);
};

struct nvml_gpu {
	struct nvml_device_st *device;
	struct nvml_device_st *card; /* of which a MIG instance is a part; else device */
	uint8_t uuid[16];
	uint64_t total; /* bytes */
	uint64_t used;
	char name[64];
};

/* The layout is NVML's. */
struct nvml_process {
	uint32_t pid;   /* in the scheduler's pid namespace; 0: not in it */
	uint64_t bytes; /* on the device; UINT64_MAX: not told */
	uint32_t gpu_instance;
	uint32_t compute_instance;
};

/* false: there is no NVML or no driver; nvml is usable (and empty) all the same. */
bool nvml_open(struct nvml *nvml);
void nvml_close(struct nvml *nvml);

/* How the device is, as far as it tells. */
struct nvml_state {
	int code; /* an nvmlReturn_t: the worst of the calls that each device answers */
	bool has_power, has_energy, has_temperature, has_utilization, has_processes, has_mig;
	bool is_mig;   /* its card is in MIG mode */
	uint64_t used; /* bytes */
	uint64_t total;
	uint64_t power_mw;
	uint64_t energy_mj;
	uint32_t celsius;
	uint32_t utilization_percent;
	uint32_t n_processes; /* that compute */
};

struct nvml_event {
	struct nvml_device_st *card;
	uint32_t xid;          /* 0: an uncorrectable ECC error */
	uint32_t gpu_instance; /* UINT32_MAX: of the whole card */
};

/* Up to n GPUs and MIG instances; a GPU that is cut into instances is not listed itself. */
uint32_t nvml_list(const struct nvml *nvml, struct nvml_gpu *ret_gpus, uint32_t n);

/* Bytes. false: the driver does not answer. */
bool nvml_memory(const struct nvml *nvml, struct nvml_device_st *device, uint64_t *ret_total,
		 uint64_t *ret_used);

/*
 * Energy since the driver was loaded; power now. false: the device does not tell (MIG instances).
 */
bool nvml_energy(const struct nvml *nvml, struct nvml_device_st *device, uint64_t *ret_mj);
bool nvml_power(const struct nvml *nvml, struct nvml_device_st *device, uint64_t *ret_mw);

/*
 * Processes with memory on the device, to compute or to draw. A process that does both may be
 * there twice. false: NVML does not tell, or there are more than max.
 */
bool nvml_processes(const struct nvml *nvml, struct nvml_device_st *device,
		    struct nvml_process *ret_processes, uint32_t max, uint32_t *ret_n);

void nvml_state(const struct nvml *nvml, const struct nvml_gpu *gpu, struct nvml_state *ret);

/* A set for nvml_event_wait(), kept until the process ends. NULL: NVML has no events. */
struct nvml_event_set_st *nvml_event_set(const struct nvml *nvml);

/* Adds the errors of card to set. Adding a card again changes nothing. */
void nvml_event_add(const struct nvml *nvml, struct nvml_event_set_st *set,
		    struct nvml_device_st *card);

/*
 * true: an event is there within timeout_ms. false: none. A wait that NVML refuses, as it may while
 * one of the GPUs is lost, takes time, too.
 */
bool nvml_event_wait(const struct nvml *nvml, struct nvml_event_set_st *set,
		     unsigned int timeout_ms, struct nvml_event *ret_event);

/* UINT32_MAX: device is no MIG instance. */
uint32_t nvml_gpu_instance(const struct nvml *nvml, struct nvml_device_st *device);

/* "GPU-" or "MIG-" and 32 hexadecimal digits with dashes. */
bool nvml_parse_uuid(const char *text, uint8_t ret_uuid[16]);

#endif
