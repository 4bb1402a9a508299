/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Looks functions up before any constructor has run, as the runtime of a sanitizer does, and ends
 * when all constructors of libraries have run. It makes the calls that such a runtime, or an
 * allocator, makes first.
 */

#include <dlfcn.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int n_wrong;

static void look_up(void)
{
	n_wrong += !dlsym(RTLD_NEXT, "getppid");
	n_wrong += !dlsym(RTLD_DEFAULT, "getppid");
	n_wrong += !dlsym(RTLD_NEXT, "ioctl");
	n_wrong += !dlsym(RTLD_DEFAULT, "ioctl");
	n_wrong += !dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	n_wrong += !dlopen(NULL, RTLD_LAZY);
	n_wrong += ioctl(-1, FIONREAD, NULL) != -1;
}

__attribute__((section(".preinit_array"), used)) static void (*const before_all)(void) = look_up;

__attribute__((constructor)) static void end(void)
{
	look_up();
	_exit(n_wrong);
}

int main(void)
{
	return 1;
}
