/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/helper.h"

#include "abi/nvml_abi.h"
#include "daemon/gpu/nvml.h"
#include "util/thread_name.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* A wait for events ends this often, because a driver may not wake a wait for new devices. */
#define WAIT_MS 60000

struct helper {
	int fd;
	struct nvml nvml;
	struct nvml_event_set_st *events; /* NULL: none */
	pthread_mutex_t lock;             /* of the devices: the thread looks them up */
	uint32_t n;
	struct nvml_gpu devices[HELPER_DEVICES_MAX];
};

static void helper_send(const struct helper *helper, struct helper_report *report)
{
	report->magic = HELPER_MAGIC;
	if (send(helper->fd, report, sizeof(*report), MSG_NOSIGNAL) < 0)
		_exit(EXIT_FAILURE); /* the scheduler is gone; exit() would wait for the driver */
}

/* Devices that are gone stay: a lost GPU must be told of. */
static void helper_list(struct helper *helper)
{
	struct nvml_gpu found[HELPER_DEVICES_MAX];
	uint32_t n = nvml_list(&helper->nvml, found, HELPER_DEVICES_MAX);

	(void)pthread_mutex_lock(&helper->lock);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = 0;

		while (at < helper->n &&
		       memcmp(helper->devices[at].uuid, found[i].uuid, sizeof(found[i].uuid)) != 0)
			at++;
		if (at == HELPER_DEVICES_MAX)
			continue;
		helper->devices[at] = found[i];
		helper->n += at == helper->n;
		if (helper->events)
			nvml_event_add(&helper->nvml, helper->events, found[i].card);
	}
	(void)pthread_mutex_unlock(&helper->lock);
}

static uint32_t helper_outcome_of(int code)
{
	if (code == NVML_SUCCESS)
		return HELPER_GOOD;
	return code == NVML_ERROR_GPU_IS_LOST || code == NVML_ERROR_RESET_REQUIRED ? HELPER_LOST
										   : HELPER_FAILED;
}

static void helper_report_gpu(const struct helper *helper, uint32_t at, uint32_t seq)
{
	const struct nvml_gpu *device = &helper->devices[at];
	struct helper_report report = {.kind = HELPER_REPORT_GPU, .seq = seq};
	struct nvml_state state;

	nvml_state(&helper->nvml, device, &state);
	memcpy(report.uuid, device->uuid, sizeof(report.uuid));
	report.outcome = helper_outcome_of(state.code);
	report.known = (state.has_temperature ? HELPER_KNOWS_TEMPERATURE : 0) |
		       (state.has_utilization ? HELPER_KNOWS_UTILIZATION : 0) |
		       (state.has_power ? HELPER_KNOWS_POWER : 0) |
		       (state.has_energy ? HELPER_KNOWS_ENERGY : 0) |
		       (state.has_processes ? HELPER_KNOWS_PROCESSES : 0) |
		       (state.has_mig ? HELPER_KNOWS_MIG : 0);
	report.celsius = state.celsius;
	report.utilization_percent = state.utilization_percent;
	report.n_processes = state.n_processes;
	report.is_mig = state.is_mig;
	report.used = state.used;
	report.total = state.total;
	report.power_mw = state.power_mw;
	report.energy_mj = state.energy_mj;
	helper_send(helper, &report);
}

static void helper_answer(struct helper *helper, const struct helper_question *question)
{
	struct helper_report end = {.kind = HELPER_REPORT_END, .seq = question->seq};

	if (question->lists)
		helper_list(helper);
	for (uint32_t i = 0; i < helper->n; i++)
		helper_report_gpu(helper, i, question->seq);
	end.n = helper->n;
	helper_send(helper, &end);
}

/* An error of a card concerns each of its instances, or the one that NVML names. */
static void helper_report_event(struct helper *helper, const struct nvml_event *event)
{
	struct helper_report report = {.kind = HELPER_REPORT_ERROR, .xid = event->xid};

	(void)pthread_mutex_lock(&helper->lock);
	for (uint32_t i = 0; i < helper->n; i++) {
		const struct nvml_gpu *device = &helper->devices[i];

		if (device->card != event->card)
			continue;
		if (device->card != device->device && event->gpu_instance != UINT32_MAX &&
		    nvml_gpu_instance(&helper->nvml, device->device) != event->gpu_instance)
			continue;
		memcpy(report.uuid, device->uuid, sizeof(report.uuid));
		helper_send(helper, &report);
	}
	(void)pthread_mutex_unlock(&helper->lock);
}

static void *helper_wait_thread(void *arg)
{
	struct helper *helper = arg;
	struct nvml_event event;

	for (;;) {
		if (nvml_event_wait(&helper->nvml, helper->events, WAIT_MS, &event))
			helper_report_event(helper, &event);
	}
	return NULL;
}

int helper_main(int fd)
{
	static struct helper helper;
	struct helper_question question;
	pthread_t thread;

	helper.fd = fd;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	thread_name("nvshare-nvml");
	(void)pthread_mutex_init(&helper.lock, NULL);
	if (!nvml_open(&helper.nvml))
		return EXIT_FAILURE;
	helper.events = nvml_event_set(&helper.nvml);
	helper_list(&helper);
	if (helper.events && pthread_create(&thread, NULL, helper_wait_thread, &helper) == 0)
		(void)pthread_detach(thread);
	for (;;) {
		ssize_t n = recv(fd, &question, sizeof(question), 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n != (ssize_t)sizeof(question) || question.magic != HELPER_MAGIC)
			_exit(EXIT_SUCCESS); /* the scheduler is gone; exit() would wait */
		helper_answer(&helper, &question);
	}
}

bool helper_report_decode(const void *bytes, uint64_t len, struct helper_report *ret_report)
{
	struct helper_report report;

	if (len != sizeof(report))
		return false;
	memcpy(&report, bytes, sizeof(report));
	if (report.magic != HELPER_MAGIC || report.kind >= HELPER_REPORT_COUNT_ ||
	    report.outcome >= HELPER_OUTCOME_COUNT_ || report.n > HELPER_DEVICES_MAX ||
	    (report.known & ~HELPER_KNOWS_ALL) || report.celsius > 1000 ||
	    report.utilization_percent > 100 || report.is_mig > 1 || report.used > report.total)
		return false;
	*ret_report = report;
	return true;
}
