/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_IPC_ACTIVATION_H
#define NVS_IPC_ACTIVATION_H

/*
 * The socket that a service manager opened for this process: LISTEN_FDS and LISTEN_PID, as
 * sd_listen_fds(3) has them. Threading: no other thread may read or change the environment.
 */

enum {
	ACTIVATION_E_SUCCESS_,
	ACTIVATION_E_OTHER, /* something else was passed than one listening socket of this name */
};

/*
 * Takes the listening SOCK_SEQPACKET socket that is bound to path. *ret_fd: non-blocking,
 * close-on-exec, and the caller's; -1: nothing was passed to this process. 0, -errno or
 * ACTIVATION_E_OTHER; a failure leaves *ret_fd untouched. The variables are gone afterwards, so
 * that no child takes them for its own.
 */
int activation_take(const char *path, int *ret_fd);

#endif
