# SPDX-License-Identifier: Apache-2.0

MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := all

VERSION := $(shell sed -n 's/^\#define NVSHARE_VERSION "\(.*\)"/\1/p' include/nvshare/version.h)

PREFIX     ?= /usr/local
BINDIR     ?= $(PREFIX)/bin
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
INSTALL    ?= install
PKG_CONFIG ?= pkg-config
PYTHON     ?= /usr/bin/python3
CUDA_HOME  ?= /usr/local/cuda

# SAN=address,undefined or SAN=thread builds beside the plain build, never over it.
SAN   ?=
BUILD ?= build
comma := ,
B := $(BUILD)/$(if $(SAN),$(subst $(comma),-,$(SAN)),plain)

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
        -Wpointer-arith -Wcast-qual -Wundef -Wvla -Wwrite-strings -Wimplicit-fallthrough \
        -Wswitch-enum -Wformat=2
CFLAGS   ?= -O2 -g
NVS_CPPFLAGS := -Isrc -Iinclude -D_GNU_SOURCE
NVS_CFLAGS   := -std=gnu11 $(WARN) $(if $(WERROR),-Werror) -fno-common -fvisibility=hidden -fPIC \
                -pthread $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
NVS_LDFLAGS  := -pthread -Wl,-z,relro,-z,now $(if $(SAN),-fsanitize=$(SAN))

COMPILE = $(CC) $(NVS_CPPFLAGS) $(CPPFLAGS) $(NVS_CFLAGS) $(CFLAGS) -MMD -MP
LINK    = $(CC) $(NVS_CFLAGS) $(CFLAGS) $(NVS_LDFLAGS) $(LDFLAGS)

# BSD_STATIC=1: programs that run where no libbsd is installed.
BSD_LIBS := $(if $(BSD_STATIC),-l:libbsd.a -l:libmd.a,$(shell $(PKG_CONFIG) --libs libbsd))

src      = $(sort $(wildcard src/$(1)/*.c))
obj      = $(patsubst %.c,$(B)/%.o,$(1))
tests_of = $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/$(1)/test_*.c)))

core_obj   := $(call obj,$(call src,core))
util_obj   := $(call obj,$(call src,util))
ipc_obj    := $(call obj,$(call src,ipc))
hook_obj   := $(call obj,$(call src,hook))
daemon_obj := $(call obj,$(call src,daemon))
cli_obj    := $(call obj,$(call src,cli))
simcuda_obj := $(call obj,$(call src,simgpu/node) $(call src,simgpu/cuda))
simnvml_obj := $(call obj,$(call src,simgpu/node) $(call src,simgpu/nvml))

libs := $(B)/libipc.a $(B)/libcore.a $(B)/libutil.a

.PHONY: all
all: $(B)/libnvshare.so $(B)/nvshare-scheduler $(B)/nvsharectl simgpu ## build everything

.PHONY: simgpu
simgpu: $(B)/simgpu/libcuda.so.1 $(B)/simgpu/libnvidia-ml.so.1 ## the simulated GPU

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(COMPILE) -c -o $@ $<

$(B)/libcore.a: $(core_obj)
$(B)/libutil.a: $(util_obj)
$(B)/libipc.a: $(ipc_obj)
$(B)/libcore.a $(B)/libutil.a $(B)/libipc.a:
	rm -f $@
	$(AR) rcs $@ $^

$(B)/exports.map: src/hook/exports.map.in src/hook/cuda_hooks.def
	@mkdir -p $(@D)
	$(CC) -E -P -undef -x c -Isrc -o $@ $<

$(B)/libnvshare.so: $(hook_obj) $(libs) $(B)/exports.map
	$(LINK) -shared -Wl,-soname,libnvshare.so -Wl,-z,defs -Wl,-z,nodelete -Wl,--as-needed \
	    -Wl,--version-script=$(B)/exports.map -o $@ $(hook_obj) $(libs) -ldl

$(B)/nvshare-scheduler: $(daemon_obj) $(libs)
	$(LINK) -o $@ $(daemon_obj) $(libs) $(BSD_LIBS) -ldl

$(B)/nvsharectl: $(cli_obj) $(libs)
	$(LINK) -o $@ $(cli_obj) $(libs) $(BSD_LIBS)

$(B)/simgpu/libcuda.so.1: $(simcuda_obj) $(B)/libutil.a
	@mkdir -p $(@D)
	$(LINK) -shared -Wl,-soname,libcuda.so.1 -Wl,-z,defs -o $@ $^ -ldl -lm
	ln -sf libcuda.so.1 $(@D)/libcuda.so

$(B)/simgpu/libnvidia-ml.so.1: $(simnvml_obj) $(B)/libutil.a
	@mkdir -p $(@D)
	$(LINK) -shared -Wl,-soname,libnvidia-ml.so.1 -Wl,-z,defs -o $@ $^ -ldl -lm
	ln -sf libnvidia-ml.so.1 $(@D)/libnvidia-ml.so

# ---- tests -----------------------------------------------------------------

CMOCKA_LIBS = $(shell $(PKG_CONFIG) --libs cmocka)
unit_tests := $(foreach d,core util ipc,$(call tests_of,$(d)))
unit_tests_hook   := $(call tests_of,hook)
unit_tests_daemon := $(call tests_of,daemon) $(call tests_of,cli)
unit_tests_simgpu := $(call tests_of,simgpu)

$(unit_tests): $(B)/tests/%: $(B)/tests/%.o $(libs)
	$(LINK) -o $@ $^ $(CMOCKA_LIBS)

# Hook modules are tested as objects; what a test replaces it defines itself.
$(unit_tests_hook): $(B)/tests/%: $(B)/tests/%.o $(B)/libhook.a $(libs)
	$(LINK) -o $@ $^ $(CMOCKA_LIBS) -ldl

$(B)/libhook.a: $(hook_obj)
	rm -f $@
	$(AR) rcs $@ $^

$(unit_tests_daemon): $(B)/tests/%: $(B)/tests/%.o $(B)/libprograms.a $(libs)
	$(LINK) -o $@ $^ $(CMOCKA_LIBS) $(BSD_LIBS) -ldl

$(B)/libprograms.a: $(filter-out %/main.o,$(daemon_obj) $(cli_obj))
	rm -f $@
	$(AR) rcs $@ $^

$(unit_tests_simgpu): $(B)/tests/%: $(B)/tests/%.o $(B)/simgpu/libcuda.so.1 $(B)/simgpu/libnvidia-ml.so.1
	$(LINK) -o $@ $< -L$(B)/simgpu -l:libcuda.so.1 -l:libnvidia-ml.so.1 \
	    -Wl,-rpath,$(abspath $(B)/simgpu) $(CMOCKA_LIBS) -ldl

# CUDA driver API programs: linked against nothing, they dlopen libcuda.so.1, so that the
# same binary runs on the simulated and on a real GPU.
apps := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/apps/*.c)))
$(apps): $(B)/tests/apps/%: $(B)/tests/apps/%.o
	$(LINK) -o $@ $^ -ldl -lm

.PHONY: apps
apps: $(apps)

-include $(shell find $(B) -name '*.d' 2>/dev/null)
