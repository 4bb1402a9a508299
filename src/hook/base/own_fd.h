/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_OWN_FD_H
#define NVS_HOOK_OWN_FD_H

/*
 * The descriptors that the library keeps in the program's table. A program that closes a descriptor
 * twice may close one of these, and then open a file that gets its number. So each has a high
 * number, which programs rarely use, and the library notes which file it is (st_dev and st_ino). A
 * number that stands for another file by now is the program's: it is neither used nor closed.
 *
 * A program may close a descriptor between the look and the use. Sockets are therefore used by
 * send() and recv() only, which leave any other file alone.
 *
 * Two files of one driver may look the same. Such a number is taken for ours.
 *
 * Threading: any thread, and a forked child. Keeps errno.
 */

/*
 * Takes fd, which may be negative. Gives it a high number, notes it, and returns it, close-on-exec.
 * Keeps fd's own number if no high one is free. -1: fd was none, or is closed, since its number
 * could not be noted.
 */
int own_fd_take(int fd);

/* fd while it is ours, else -1. */
int own_fd_of(int fd);

/* Forgets fd and returns it, for a close(). -1: it was not ours any more. */
int own_fd_forget(int fd);

/* Closes fd if it is ours. Returns -1, for "fd = own_fd_close(fd)". */
int own_fd_close(int fd);

#endif
