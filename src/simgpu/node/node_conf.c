/* SPDX-License-Identifier: Apache-2.0 */

/* Reads the hardware from the environment, and makes the devices' UUIDs. */

#include "simgpu/node/node.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/parse.h"

static bool node_is_debug(void)
{
	const char *s = getenv("NVSHARE_SIM_DEBUG");

	return s && *s && strcmp(s, "0") != 0;
}

void node_debug(const char *format, ...)
{
	char line[512];
	va_list ap;
	int n, m;

	if (!node_is_debug())
		return;
	n = snprintf(line, sizeof(line), "simgpu[%d]: ", (int)getpid());
	va_start(ap, format);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, ap);
	va_end(ap);
	n += m < (int)sizeof(line) - n - 1 ? m : (int)sizeof(line) - n - 2;
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

static uint64_t read_u64(const char *name, uint64_t min, uint64_t max, uint64_t missing)
{
	const char *s = getenv(name);
	uint64_t value;

	if (!s || !*s)
		return missing;
	if (parse_u64(s, min, max, &value) == 0)
		return value;
	node_debug("%s=%s is not a number from %ju to %ju: ignored", name, s, (uintmax_t)min,
		   (uintmax_t)max);
	return missing;
}

static uint64_t read_size(const char *name, uint64_t min, uint64_t missing)
{
	const char *s = getenv(name);
	uint64_t value;

	if (!s || !*s)
		return missing;
	if (parse_size(s, &value) == 0 && value >= min)
		return value;
	node_debug("%s=%s is not a size: ignored", name, s);
	return missing;
}

/* "1GiB", or a list, "1GiB,2GiB", one size a GPU. The last size serves the rest. */
static void read_memory(struct node_config *ret)
{
	const char *s = getenv("NVSHARE_SIM_MEMORY");
	uint64_t value = 1ull << 30, parsed;
	char copy[256], *rest = copy, *word;
	unsigned int i;

	snprintf(copy, sizeof(copy), "%s", s ? s : "");
	for (i = 0; i < NODE_GPUS_MAX; i++) {
		word = rest ? strsep(&rest, ",") : NULL;
		if (word && *word) {
			if (parse_size(word, &parsed) == 0 && parsed > 0)
				value = parsed;
			else
				node_debug("NVSHARE_SIM_MEMORY: %s is not a size: ignored", word);
		}
		ret->gpu_memory[i] = value;
	}
}

/* "GENERATIONxLANES", "c2c" or "none". */
static void read_link(struct node_config *ret)
{
	const char *s = getenv("NVSHARE_SIM_LINK");
	unsigned int generation = 3, width = 16;
	int end = 0;

	if (s && strcmp(s, "none") == 0)
		return;
	if (s && strcmp(s, "c2c") == 0) {
		ret->n_c2c = 10;
		return;
	}
	if (s && *s && (sscanf(s, "%2ux%2u%n", &generation, &width, &end) != 2 || s[end] != '\0')) {
		node_debug("NVSHARE_SIM_LINK=%s is no link: ignored", s);
		generation = 3;
		width = 16;
	}
	ret->pcie_generation = generation;
	ret->pcie_width = width;
}

void node_config_read(struct node_config *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->n_gpus = (uint32_t)read_u64("NVSHARE_SIM_GPUS", 1, NODE_GPUS_MAX, 1);
	ret->n_mig = (uint32_t)read_u64("NVSHARE_SIM_MIG", 0, 7, 0);
	if (ret->n_mig * ret->n_gpus > NODE_DEVICES_MAX)
		ret->n_mig = NODE_DEVICES_MAX / ret->n_gpus;
	ret->n_devices = ret->n_gpus * (ret->n_mig ? ret->n_mig : 1);
	ret->is_coherent = (uint32_t)read_u64("NVSHARE_SIM_COHERENT", 0, 1, 0);
	ret->is_confidential = (uint32_t)read_u64("NVSHARE_SIM_CONFIDENTIAL", 0, 1, 0);
	ret->is_mps = (uint32_t)read_u64("NVSHARE_SIM_MPS", 0, 1, 0);
	ret->context_bytes = read_size("NVSHARE_SIM_CONTEXT", 1, 16ull << 20);
	ret->bandwidth = read_size("NVSHARE_SIM_BANDWIDTH", 1, 8ull << 30);
	ret->host_memory = read_size("NVSHARE_SIM_HOST_MEMORY", 0, 64ull << 30);
	read_memory(ret);
	read_link(ret);
}

unsigned int node_connections(void)
{
	return (unsigned int)read_u64("CUDA_DEVICE_MAX_CONNECTIONS", 1, 32, 0);
}

void node_uuid(unsigned int gpu, unsigned int instance_plus_1, unsigned char ret[16])
{
	memcpy(ret, "nvshare\0simgpu", 14);
	ret[14] = (unsigned char)instance_plus_1;
	ret[15] = (unsigned char)gpu;
}

void node_uuid_format(const unsigned char uuid[16], bool is_mig, char *buf, size_t size)
{
	char hex[33];
	int i;

	for (i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", uuid[i]);
	snprintf(buf, size, "%s-%.8s-%.4s-%.4s-%.4s-%.12s", is_mig ? "MIG" : "GPU", hex, hex + 8,
		 hex + 12, hex + 16, hex + 20);
}
