/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVSHARE_VERSION_H
#define NVSHARE_VERSION_H

/* The one place that names the version; the Makefile and the man pages read it from here. */
#define NVSHARE_VERSION "0.1.0"

#endif
