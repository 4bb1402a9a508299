/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_NODE_H
#define NVS_SIMGPU_NODE_H

/*
 * The node of the simulated GPUs: one mapped file, which all its processes share.
 *
 * The environment of the first process defines the hardware (number and size of GPUs). The
 * definition stays while any process uses the node. Every number is in the slot of the process
 * that it belongs to; functions add up totals. So a killed process leaves nothing to repair:
 * the next process that looks drops its slot.
 *
 * Threading: any thread may call these functions once node_attach() has returned; those with
 * _locked in their names between node_lock() and node_unlock(). Errors are -errno. A "device"
 * is what CUDA counts: a GPU, or a MIG instance.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	NODE_GPUS_MAX = 16,
	NODE_DEVICES_MAX = 64,
	NODE_HOST =
		NODE_DEVICES_MAX, /* the "device" that host memory of cuMemCreate is charged to */
	NODE_PROCS_MAX = 512,
	NODE_EVENTS_MAX = 64,
	NODE_PASSED_MAX = 1024,
	NODE_LOAD_BUCKETS = 32,
	NODE_LOAD_BUCKET_MS = 100,
};

enum node_direction { NODE_TO_DEVICE, NODE_TO_HOST, NODE_DIRECTION_COUNT_ };
enum node_event_kind { NODE_EVENT_XID, NODE_EVENT_ECC_SINGLE, NODE_EVENT_ECC_DOUBLE };
enum node_counter {
	NODE_COUNTER_LAUNCHES,
	NODE_COUNTER_STEPS,
	NODE_COUNTER_BYTES_TO_DEVICE,
	NODE_COUNTER_BYTES_TO_HOST,
	NODE_COUNTER_MIGRATED_TO_DEVICE,
	NODE_COUNTER_MIGRATED_TO_HOST,
	NODE_COUNTER_HOLDS,   /* calls that waited for the GPU and kept other calls out */
	NODE_COUNTER_BLOCKED, /* calls that another call kept out */
	NODE_COUNTER_COUNT_,
};

/* Busy nanoseconds of the last 3.2 s, in buckets of 0.1 s. */
struct node_load {
	uint64_t busy_ns[NODE_LOAD_BUCKETS];
	uint64_t stamp[NODE_LOAD_BUCKETS];
};

struct node_proc_device {
	uint64_t used;    /* bytes of GPU memory, contexts included */
	uint64_t kept;    /* the part of used without data: other processes may take it */
	uint64_t passed;  /* passed memory that it has a handle of; not in used */
	uint64_t busy_ns; /* compute time since it took the slot */
	uint64_t ticket;  /* place in the queue for the compute token; 0: not in the queue */
	struct node_load load;
};

struct node_proc {
	uint32_t pid;  /* 0: the slot is free */
	uint32_t wake; /* futex of the process's worker */
	uint64_t start_time;
	uint64_t counters[NODE_COUNTER_COUNT_];
	struct node_proc_device device[NODE_DEVICES_MAX + 1];
};

struct node_device {
	uint64_t capacity;
	uint64_t busy_ns;
	uint64_t tickets;           /* last one given */
	uint64_t token_deadline_ns; /* from then on any process may take the token away */
	uint32_t token_owner;       /* slot + 1; 0: the token is free */
	uint32_t is_lost;           /* off the bus (Xid 79 or 119), until "recover" */
	uint64_t copies_end_ns[NODE_DIRECTION_COUNT_];
	uint64_t ecc_errors[2];  /* single, double */
	uint64_t spent_until_ns; /* the host's time up to which the device's is accounted */
	uint64_t late_ns;        /* so much is the device's clock behind the host's */
	struct node_load load;
};

/* Exported memory, which belongs to no process any more. */
struct node_passed {
	uint64_t id[2]; /* random; names the token */
	uint64_t bytes; /* 0: the entry is free */
	uint32_t device;
	uint32_t unused;
};

struct node_event {
	uint64_t id; /* 1, 2, ... in order of injection */
	uint32_t kind;
	uint32_t gpu;
	uint64_t data; /* Xid number */
};

struct node_config {
	uint32_t n_gpus;
	uint32_t n_mig; /* MIG instances of a GPU; 0: MIG is off */
	uint32_t n_devices;
	uint32_t is_coherent; /* CPU and GPU share their memory */
	uint32_t is_confidential;
	uint32_t is_mps;                      /* only the device attribute shows it */
	uint32_t pcie_generation, pcie_width; /* 0: NVML does not know them */
	uint32_t n_c2c;                       /* NVLink-C2C links to the host */
	uint64_t gpu_memory[NODE_GPUS_MAX];
	uint64_t context_bytes;
	uint64_t host_memory; /* that cuMemCreate may have in all; 0: the driver cannot */
	uint64_t bandwidth;   /* bytes a second, a direction */
};

struct node_shared {
	uint64_t magic;
	uint64_t size;
	pthread_mutex_t lock;
	struct node_config config;
	uint64_t created_ns;
	uint64_t last_event;
	uint64_t n_slots; /* scans end here: all slots from here on are free */
	struct node_event events[NODE_EVENTS_MAX];
	struct node_device device[NODE_DEVICES_MAX + 1];
	struct node_passed passed[NODE_PASSED_MAX];
	struct node_proc proc[NODE_PROCS_MAX];
};

/* The process's view; shared and self are NULL before node_attach() and in a forked child. */
struct node {
	struct node_shared *shared;
	struct node_proc *self;
	char dir[256];
};

extern struct node node_view;

/* Maps the node, and takes a slot. Makes the node if it is missing or damaged. Idempotent. */
int node_attach(void);
void node_detach(void); /* gives the slot and all its bytes back */
/*
 * At exit: gives the bytes back, but keeps the slot, because other threads may still use it.
 * Another process drops the slot when this one has gone.
 */
void node_leave(void);
void node_forget(void); /* in a forked child, because the slot is the parent's */

/* A missing or wrong value gives the default. NVSHARE_SIM_DEBUG=1 reports wrong values. */
void node_config_read(struct node_config *ret);
unsigned int node_connections(void); /* hardware queues of a context; 0: one a stream */
void node_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The node's lock is robust: the state behind it is consistent even if its holder dies. */
void node_lock(void);
void node_unlock(void);

/*
 * Stops the process by SIGSTOP, while none of its threads holds the node's lock. A stopped
 * process holds no lock of a real driver either.
 */
void node_stop(void);

bool node_proc_is_alive(const struct node_proc *proc);
/* The processes of a node may be in several pid namespaces. This /proc shows all of them. */
const char *node_proc_folder(void);
/* The number of this process, as the other processes of the node know it. */
uint32_t node_proc_own(void);
bool node_proc_start_time(uint32_t pid, uint64_t *ret);
void node_reap_locked(void); /* drops the slots of dead processes */

/*
 * Moves a charge of this process to a token, a descriptor that other processes may get. The
 * bytes count as used, once, while a descriptor of the token is open anywhere, or in a message
 * that nobody has received. They are free when a process looks after the last one has gone.
 * Returns the token, which the caller closes, or -errno, and nothing has changed.
 */
int node_pass(unsigned int device, uint64_t bytes);
void node_passed_hold(unsigned int device, int64_t bytes); /* a handle's bytes, for NVML's lists */
uint64_t node_passed_locked(unsigned int device);          /* bytes in use */
void node_passed_reap_locked(void);

/* Charges bytes to this process. -ENOMEM: the device is full, even without dead processes. */
int node_charge(unsigned int device, uint64_t bytes);
void node_uncharge(unsigned int device, uint64_t bytes);
/*
 * Keeps charged bytes without data, which other processes may take when they have no room.
 * node_unkeep() takes them back; false: another process has them. bytes: a multiple of
 * NODE_KEPT_PAGE.
 */
#define NODE_KEPT_PAGE (2ull << 20)
void node_keep(unsigned int device, uint64_t bytes);
bool node_unkeep(unsigned int device, uint64_t bytes);
uint64_t node_used(unsigned int device); /* bytes of all living processes */
uint64_t node_used_locked(unsigned int device);

/*
 * The compute token. try returns true if this process has it. Else it queues this process, whose
 * wake word changes when it gets the token. The holder calls yield at the end of its slice, which
 * returns true if it keeps the token, and drop when it has nothing to compute. A holder that makes
 * no step for a second can lose it: is_mine tells.
 */
bool node_token_try(unsigned int device);
bool node_token_is_mine(unsigned int device);
bool node_token_yield(unsigned int device);
void node_token_drop(unsigned int device);

/* Sleeps until the wake word is no longer seen, or until until_ns (UINT64_MAX: no limit). */
void node_wait(uint32_t seen, uint64_t until_ns);
void node_wake_self(void);

/*
 * The clock of a device, which passes with modelled time. While the device computes it passes by
 * what is spent, and with the host's clock else. A host that takes longer makes it late; one that
 * is faster has to wait until node_gpu_until(), a time of the host's. Both need no lock.
 */
uint64_t node_gpu_time(unsigned int device);
uint64_t node_gpu_until(unsigned int device);
/* The holder of the token has computed for ns, of its own time too. The device's time then. */
uint64_t node_gpu_spend(unsigned int device, uint64_t ns);

/* Books bytes on the bus; the time at which the transfer is over. */
uint64_t node_copy_book(unsigned int device, enum node_direction direction, uint64_t bytes);
void node_count(enum node_counter counter, uint64_t n);

/* Busy share, 0..1, of the window that ended now, which is of the device's time. */
double node_load_ratio(const struct node_load *load, uint64_t now_ns, uint64_t window_ns);

/*
 * node_inject_poll() moves lines of <dir>/inject ("xid 79 gpu 0", "ecc double gpu 1",
 * "recover gpu 0") to the ring of events. node_event_next() reads the next event after *last,
 * and advances *last; false: there is none.
 */
void node_inject_poll(void);
bool node_event_next(uint64_t *last, struct node_event *ret);

void node_uuid(unsigned int gpu, unsigned int instance_plus_1, unsigned char ret[16]);
void node_uuid_format(const unsigned char uuid[16], bool is_mig, char *buf, size_t size);

#endif
