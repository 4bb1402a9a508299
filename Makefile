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
MANDIR     ?= $(PREFIX)/share/man
PKGCONFIGDIR ?= $(LIBDIR)/pkgconfig
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR  ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
DATADIR ?= $(PREFIX)/share/nvshare
# systemd looks below /usr/local, too.
UNITDIR     ?= $(PREFIX)/lib/systemd/system
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
TMPFILESDIR ?= $(PREFIX)/lib/tmpfiles.d
# Slurm's own folder of plugins. Where there is none, plugstack.conf names the plugin by its whole path.
SLURMDIR    ?= $(firstword $(wildcard /usr/lib/*/slurm-wlm /usr/lib64/slurm /usr/lib/slurm /usr/local/lib/slurm) \
    $(LIBDIR)/slurm)
INSTALL    ?= install
PKG_CONFIG ?= pkg-config
PYTHON     ?= /usr/bin/python3
CUDA_HOME  ?= /usr/local/cuda
# The folder below PREFIX where PYTHON finds modules. If there is none, users set PYTHONPATH.
PYTHONDIR  ?= $(or $(shell $(PYTHON) -c 'import site; print(*[d for d in site.getsitepackages() \
    if d.startswith("$(PREFIX)/lib/")][:1])' 2>/dev/null),$(LIBDIR)/nvshare/python)

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
                -ffp-contract=off \
                -pthread $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
NVS_LDFLAGS  := -pthread -Wl,-z,relro,-z,now $(if $(SAN),-fsanitize=$(SAN))

COMPILE = $(CC) $(NVS_CPPFLAGS) $(CPPFLAGS) $(NVS_CFLAGS) $(CFLAGS) -MMD -MP
LINK    = $(CC) $(NVS_CFLAGS) $(CFLAGS) $(NVS_LDFLAGS) $(LDFLAGS)

src      = $(sort $(wildcard src/$(1)/*.c))
obj      = $(patsubst %.c,$(B)/%.o,$(1))
tests_of = $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/$(1)/test_*.c)))

core_obj   := $(call obj,$(call src,core) $(call src,core/*))
util_obj   := $(call obj,$(call src,util))
ipc_obj    := $(call obj,$(call src,ipc))
hook_obj   := $(call obj,$(call src,hook) $(call src,hook/*))
checked_obj := $(patsubst $(B)/%,$(B)/checked/%,$(hook_obj))
daemon_obj := $(call obj,$(call src,daemon) $(call src,daemon/*))
cli_obj    := $(call obj,$(call src,cli))
sim_obj    := $(call obj,$(call src,sim))
k8s_obj    := $(call obj,$(call src,k8s)) $(B)/src/k8s/deviceplugin.pb-c.o
simcuda_obj := $(call obj,$(call src,simgpu/node) $(call src,simgpu/cuda))
simnvml_obj := $(call obj,$(call src,simgpu/node) $(call src,simgpu/nvml))

YAML_LIBS = $(shell $(PKG_CONFIG) --libs yaml-0.1)
libs := $(B)/libipc.a $(B)/libcore.a $(B)/libutil.a

# The plugin of Slurm, where Slurm's headers are (libslurm-dev; SLURM_CPPFLAGS names others). Slurm
# takes a plugin of its own release alone.
SLURM_CPPFLAGS ?=
slurm_obj   := $(call obj,$(call src,slurm))
slurm_spank := $(if $(shell $(CC) $(SLURM_CPPFLAGS) -E -include slurm/spank.h -x c /dev/null >/dev/null 2>&1 && echo 1),\
    $(B)/nvshare_spank.so)

.PHONY: all
all: $(B)/needs $(B)/libnvshare.so $(B)/libgpu_scheduler.so $(B)/nvshare-scheduler $(B)/nvsharectl device-plugin simgpu man $(slurm_spank) ## build everything

# A package that is missing is named before a minute of compiling.
$(B)/needs: scripts/check-needs
	@mkdir -p $(@D)
	@scripts/check-needs "$(CC)" "$(PKG_CONFIG)"
	@touch $@
$(daemon_obj) $(cli_obj): | $(B)/needs

.PHONY: simgpu
simgpu: $(B)/simgpu/libcuda.so.1 $(B)/simgpu/libnvidia-ml.so.1 ## the simulated GPU

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(COMPILE) -c -o $@ $<

# Its assembly defines versioned symbols, which a compiler that links sees too late.
$(B)/src/hook/table/hook_dlsym.o $(B)/checked/src/hook/table/hook_dlsym.o: override CFLAGS += -fno-lto

# The library again, as the unit and end-to-end tests have it: it aborts where a thread takes mutexes
# out of their order (src/hook/base/hook_mutex.h).
$(B)/checked/%.o: %.c
	@mkdir -p $(@D)
	$(COMPILE) -DNVSHARE_LOCK_ORDER -c -o $@ $<

# Where nvsharectl and the device plugin look for the library that is installed.
$(B)/src/cli/library_path.o $(B)/src/k8s/plugin_options.o: private override CPPFLAGS += -DNVSHARE_LIBDIR='"$(LIBDIR)"'

$(B)/libcore.a: $(core_obj)
$(B)/libutil.a: $(util_obj)
$(B)/libipc.a: $(ipc_obj)
$(B)/%.a:
	rm -f $@
	$(AR) rcs $@ $^

# The page is one file. Browsers run its script and use its style by their hashes alone.
page_hash = $(shell sed -n '/^<$(1)>$$/,/^<\/$(1)>$$/{s/^<$(1)>$$//;/^<\/$(1)>$$/!p}' src/page/page.html | sha256sum | \
    cut -c1-64 | tr a-f A-F | basenc -d --base16 | base64)
$(B)/src/daemon/http/page_html.o: src/page/page.html
$(B)/src/daemon/http/page_html.o: override CPPFLAGS += -DPAGE_SCRIPT_HASH='"$(call page_hash,script)"' \
    -DPAGE_STYLE_HASH='"$(call page_hash,style)"'

# The version of dlsym() since the C library's first port to this processor.
GLIBC_BASE = $(if $(findstring aarch64,$(shell $(CC) -dumpmachine)),GLIBC_2.17,GLIBC_2.2.5)
# That of dlmopen(), where it is another one.
GLIBC_DLMOPEN = $(if $(filter GLIBC_2.2.5,$(GLIBC_BASE)),GLIBC_2.3.4)

$(B)/exports.map: src/hook/table/exports.map.in src/hook/table/cuda_hooks.def
	@mkdir -p $(@D)
	$(CC) -E -P -undef -x c -Isrc -DNVS_GLIBC_BASE=$(GLIBC_BASE) \
	    $(GLIBC_DLMOPEN:%=-DNVS_GLIBC_DLMOPEN=%) -o $@ $<

# Functions that glibc has moved into libc since 2.17, or that it lacked then. The library is linked with
# stand-ins for the libraries of old, so that it asks for these functions by name, without a version, and
# loads where they are.
floor := $(B)/floor/libpthread.so.0 $(B)/floor/libdl.so.2
$(B)/floor/libpthread.so.0: functions = pthread_attr_setstacksize pthread_cond_clockwait pthread_create \
    pthread_join pthread_key_create pthread_once pthread_setspecific pthread_sigmask
$(B)/floor/libdl.so.2: functions = dladdr dladdr1 dlclose dlopen
$(floor): Makefile
	@mkdir -p $(@D)
	$(CC) -shared -nostdlib -Wl,-soname,$(@F) $(functions:%=-Wl,--defsym=%=0) -o $@ -x c /dev/null

$(B)/libnvshare.so: $(hook_obj)
$(B)/checked/libnvshare.so: $(checked_obj)
$(B)/libnvshare.so $(B)/checked/libnvshare.so: $(libs) $(B)/exports.map $(floor)
	$(LINK) -shared -Wl,-soname,libnvshare.so -Wl,-z,defs -Wl,-z,nodelete -Wl,--as-needed \
	    -Wl,-Bsymbolic-functions -Wl,--version-script=$(B)/exports.map -o $@ $(filter %.o,$^) $(libs) $(floor)

# The name that programs written for Orion load.
$(B)/libgpu_scheduler.so: $(B)/libnvshare.so
	ln -sf $(<F) $@

DAEMON_LIBS = $(YAML_LIBS) $(shell $(PKG_CONFIG) --libs libmicrohttpd) -lm -ldl
$(B)/nvshare-scheduler: $(daemon_obj) $(libs)
	$(LINK) -o $@ $(daemon_obj) $(libs) $(DAEMON_LIBS)

# ncurses with wide characters, for nvsharectl top.
CLI_LIBS = $(shell $(PKG_CONFIG) --libs ncursesw)
$(B)/nvsharectl: $(cli_obj) $(libs)
	$(LINK) -o $@ $(cli_obj) $(libs) $(CLI_LIBS) -ldl

$(B)/src/slurm/nvshare_spank.o: override CPPFLAGS += $(SLURM_CPPFLAGS) -DNVSHARE_LIBDIR='"$(LIBDIR)"'
$(B)/nvshare_spank.so: $(slurm_obj) $(libs)
	$(LINK) -shared -o $@ $^

# A build without gRPC's parts only lacks the plugin.
K8S_PACKAGES = libnghttp2 libprotobuf-c
has_k8s := $(shell $(PKG_CONFIG) --exists $(K8S_PACKAGES) && command -v protoc-c)
.PHONY: device-plugin
device-plugin: $(if $(has_k8s),$(B)/nvshare-device-plugin) ## the device plugin of Kubernetes
	@$(if $(has_k8s),:,echo "no device plugin: libnghttp2, libprotobuf-c or protoc-c is missing (scripts/setup installs them)")

K8S_LIBS = $(shell $(PKG_CONFIG) --libs $(K8S_PACKAGES))
$(B)/nvshare-device-plugin: $(k8s_obj) $(libs)
	$(LINK) -o $@ $(k8s_obj) $(libs) $(K8S_LIBS)

$(B)/src/k8s/deviceplugin.pb-c.c $(B)/src/k8s/deviceplugin.pb-c.h &: src/k8s/deviceplugin.proto
	@mkdir -p $(@D)
	protoc-c --proto_path=src --c_out=$(B)/src $<
$(B)/src/k8s/deviceplugin.pb-c.o: $(B)/src/k8s/deviceplugin.pb-c.c
	$(COMPILE) -Wno-cast-qual -c -o $@ $<
$(k8s_obj): override CPPFLAGS += -isystem $(B)/src
$(B)/src/k8s/allocate.o $(B)/src/k8s/methods.o: | $(B)/src/k8s/deviceplugin.pb-c.h

.PHONY: nvshare-sim
nvshare-sim: $(B)/nvshare-sim ## predicts latency beside other programs, without a GPU
$(B)/nvshare-sim: $(sim_obj) $(B)/libcore.a $(B)/libutil.a
	$(LINK) -o $@ $^ -lm

$(B)/simgpu/libcuda.so.1: $(simcuda_obj) $(B)/libutil.a
	@mkdir -p $(@D)
	$(LINK) -shared -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,-z,nodelete \
	    -Wl,--dynamic-list=src/simgpu/cuda/plt.list -o $@ $^ -ldl -lm
	ln -sf libcuda.so.1 $(@D)/libcuda.so

$(B)/simgpu/libnvidia-ml.so.1: $(simnvml_obj) $(B)/libutil.a
	@mkdir -p $(@D)
	$(LINK) -shared -Wl,-soname,libnvidia-ml.so.1 -Wl,-z,defs -o $@ $^ -ldl -lm
	ln -sf libnvidia-ml.so.1 $(@D)/libnvidia-ml.so

# ---- container images ------------------------------------------------------

# The contexts of kubernetes/images, each with its programs and their shared libraries. A builder only copies them.
images := $(BUILD)/images
device_plugin := $(if $(wildcard src/k8s/main.c),$(B)/nvshare-device-plugin)
terminfo := $(addprefix /lib/terminfo/,l/linux s/screen-256color t/tmux-256color v/vt100 x/xterm x/xterm-256color)
# NVML, which comes from the node, needs these of the C library.
nvml_needs := $(foreach l,libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1,$(shell $(CC) -print-file-name=$(l)))
.PHONY: images
images: $(B)/libnvshare.so $(B)/nvshare-scheduler $(B)/nvsharectl $(device_plugin) ## the contexts of the container images
	scripts/image-root $(images)/scheduler $(B)/nvshare-scheduler=/usr/bin/ $(B)/nvsharectl=/usr/bin/ \
	    /etc/debian_version $(nvml_needs) $(wildcard $(terminfo))
	scripts/image-root $(images)/device-plugin $(device_plugin:%=%=/usr/bin/) \
	    $(B)/libnvshare.so=/usr/lib/nvshare/libnvshare.so.$(VERSION) \
	    kubernetes/images/install-library=/usr/bin/nvshare-install-library \
	    /bin/dash=/usr/bin/sh /bin/cp=/usr/bin/ /bin/ln=/usr/bin/ /bin/mv=/usr/bin/

# ---- manual pages ----------------------------------------------------------

man_pages := $(patsubst src/man/%.md,%,$(sort $(wildcard src/man/*.md)))
# A build without lowdown and pandoc only lacks the manual pages.
man_tool  := $(shell command -v lowdown || command -v pandoc)
.PHONY: man
man: $(if $(man_tool),$(man_pages:%=$(B)/man/%)) ## manual pages, by lowdown or pandoc
	@$(if $(man_tool),:,echo "no manual pages: neither lowdown nor pandoc is there (scripts/setup installs lowdown)")

$(B)/man/%: src/man/%.md scripts/man-page include/nvshare/version.h
	@mkdir -p $(@D)
	scripts/man-page $(VERSION) $< >$@

# ---- tests -----------------------------------------------------------------

CMOCKA_LIBS = $(shell $(PKG_CONFIG) --libs cmocka)
# Programs with one thread have nothing for the thread sanitizer, and take minutes under it.
one_thread = $(if $(findstring thread,$(SAN)),,$(call tests_of,$(1)))
one_thread_tests := %/util/test_digest %/hook/test_pager_frozen
threaded = $(if $(findstring thread,$(SAN)),$(filter-out $(one_thread_tests),$(call tests_of,$(1))),$(call tests_of,$(1)))
unit_tests := $(call one_thread,core) $(foreach d,util ipc,$(call threaded,$(d)))
unit_tests_hook   := $(call threaded,hook)
unit_tests_daemon := $(call tests_of,daemon) $(call tests_of,cli)
unit_tests_simgpu := $(call tests_of,simgpu)
unit_tests_sim    := $(call one_thread,sim)
unit_tests_slurm  := $(call one_thread,slurm)
unit_tests_k8s    := $(if $(has_k8s),$(call one_thread,k8s))

# What several tests share: the files of their folders that are no programs.
helpers_of = $(call obj,$(filter-out tests/$(1)/test_%,$(sort $(wildcard tests/$(1)/*.c))))
sim_programs := $(addprefix $(B)/tests/sim/,sim_fleet sim_jobs sim_orion sim_pool sim_sched sim_share exhaustive_jobs exhaustive_share)
$(B)/libtest.a: $(filter-out $(sim_programs:=.o) %/exhaustive.o,$(foreach d,core daemon sim,$(call helpers_of,$(d))))
# It puts an ioctl() in the place of libc's, which no other test may have.
$(B)/libsimtest.a: $(call helpers_of,simgpu)

$(unit_tests): $(B)/tests/%: $(B)/tests/%.o $(B)/libtest.a $(libs)
	$(LINK) -o $@ $^ $(CMOCKA_LIBS)

# Hook modules are tested as objects; what a test replaces it defines itself.
$(unit_tests_hook:=.o): NVS_CPPFLAGS += -DNVSHARE_LOCK_ORDER
$(unit_tests_hook): $(B)/tests/%: $(B)/tests/%.o $(B)/libhooktest.a $(B)/checked/libhook.a $(libs)
	$(LINK) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(CMOCKA_LIBS) -ldl

# Those that stand in place of the library's objects are linked only where a test is to have them.
hook_lib = $(1:%=$(B)/tests/hook/lib/%.o)
hook_tests = $(filter $(1:%=$(B)/tests/hook/test_%),$(unit_tests_hook))
$(call hook_tests,agent% share share_activity share_limit): $(call hook_lib,agent_rig share_hook_rig fake_driver)
$(call hook_tests,drain): $(call hook_lib,fake_driver)
$(call hook_tests,channels freeze% pager_frozen): $(call hook_lib,fake_rm)
$(B)/libhooktest.a: $(call hook_lib,fake_scheduler virtual_clock)
	rm -f $@
	$(AR) rcs $@ $^

# Tests keep the C library's dlsym() and ioctl().
$(B)/libhook.a: $(filter-out %/hook_dlsym.o %/hook_ioctl.o,$(hook_obj))
$(B)/checked/libhook.a: $(filter-out %/hook_dlsym.o %/hook_ioctl.o,$(checked_obj))
$(B)/libhook.a $(B)/checked/libhook.a:
	rm -f $@
	$(AR) rcs $@ $^

$(unit_tests_daemon): $(B)/tests/%: $(B)/tests/%.o $(B)/libtest.a $(B)/libprograms.a $(libs)
	$(LINK) -o $@ $^ $(CMOCKA_LIBS) $(DAEMON_LIBS) $(CLI_LIBS)

$(B)/libprograms.a: $(filter-out %/main.o,$(daemon_obj) $(cli_obj))

# Without the part that needs Slurm's headers.
$(unit_tests_slurm): $(B)/tests/%: $(B)/tests/%.o $(filter-out %/nvshare_spank.o,$(slurm_obj)) $(libs)
	$(LINK) -o $@ $^ $(CMOCKA_LIBS)

$(B)/libk8s.a: $(filter-out %/main.o,$(k8s_obj))
$(unit_tests_k8s:=.o): override CPPFLAGS += -isystem $(B)/src
$(unit_tests_k8s:=.o): | $(B)/src/k8s/deviceplugin.pb-c.h
$(unit_tests_k8s): $(B)/tests/%: $(B)/tests/%.o $(B)/libk8s.a $(libs)
	$(LINK) -o $@ $^ $(CMOCKA_LIBS) $(K8S_LIBS)

$(unit_tests_sim): $(B)/tests/%: $(B)/tests/%.o $(filter-out %/main.o,$(sim_obj)) $(B)/libtest.a $(B)/libcore.a $(B)/libutil.a
	$(LINK) -o $@ $^ $(CMOCKA_LIBS) -lm

$(unit_tests_simgpu): $(B)/tests/%: $(B)/tests/%.o $(B)/libsimtest.a $(B)/libutil.a $(B)/simgpu/libcuda.so.1 $(B)/simgpu/libnvidia-ml.so.1
	$(LINK) -o $@ $< $(B)/libsimtest.a $(B)/libutil.a -L$(B)/simgpu -l:libcuda.so.1 -l:libnvidia-ml.so.1 \
	    -Wl,-rpath,$(abspath $(B)/simgpu) $(CMOCKA_LIBS) -ldl

# CUDA driver API programs. They dlopen() libcuda.so.1, so that one binary runs on the simulated GPU and on a
# real one.
apps := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/apps/*.c)))
# These programs freeze themselves, so they contain the library's code and its ioctl().
freezing_apps := $(addprefix $(B)/tests/apps/,flow freeze jpeg latency locks video)
$(freezing_apps): $(B)/tests/apps/%: $(B)/tests/apps/%.o $(B)/src/hook/freeze/hook_ioctl.o \
    $(B)/libapp.a $(B)/libhook.a $(libs)
	$(LINK) -Wl,--export-dynamic-symbol=ioctl -o $@ $^ -ldl -lm
$(B)/tests/apps/digest: $(B)/tests/apps/digest.o $(B)/libapp.a $(B)/libhook.a $(libs)
	$(LINK) -o $@ $^ -ldl -lm
$(B)/tests/apps/task: $(B)/tests/apps/task.o $(libs)
	$(LINK) -o $@ $^
$(filter-out $(freezing_apps) %/digest %/task,$(apps)): $(B)/tests/apps/%: $(B)/tests/apps/%.o $(B)/libapp.a
	$(LINK) -o $@ $^ -ldl -lm

$(B)/libapp.a: $(call obj,$(filter-out %/contained.c,$(sort $(wildcard tests/apps/lib/*.c))))

# The same program with the library inside, so that the sanitizer watches both.
contained := $(addprefix $(B)/tests/apps/lib/,orion orion_ends)
$(contained): $(B)/tests/apps/lib/%: $(B)/tests/apps/%.o $(B)/tests/apps/lib/contained.o \
    $(filter-out %/hook_dlsym.o %/hook_ioctl.o %/orion_first.o,$(hook_obj)) $(B)/libapp.a $(libs)
	$(LINK) -rdynamic -o $@ $^ -ldl -lm

.PHONY: check-orion-races
check-orion-races: $(contained) $(B)/simgpu/libcuda.so.1 $(B)/simgpu/libnvidia-ml.so.1 ## with SAN=thread: clients of one process
	tests/apps/orion_races $(B)

# What tests/apps/plugged opens: the driver linked, with its functions bound at once, or at their first
# call; and the driver found by dlsym().
plugins := $(addprefix $(B)/tests/apps/plugin/,libplugin.so libplugin_lazy.so libplugin_finds.so)
$(B)/tests/apps/plugin/libplugin_lazy.so: private override LDFLAGS += -Wl,-z,lazy
$(B)/tests/apps/plugin/libplugin_finds.so: private override CPPFLAGS += -DPLUGIN_FINDS
$(plugins): tests/apps/plugin/plugin.c tests/apps/plugin/plugin.h $(B)/simgpu/libcuda.so.1
	@mkdir -p $(@D)
	$(LINK) $(NVS_CPPFLAGS) $(CPPFLAGS) -shared -o $@ $< -Wl,--as-needed -L$(B)/simgpu -l:libcuda.so.1 -ldl

.PHONY: apps
apps: $(apps) $(plugins)


ALL_UNIT_TESTS = $(unit_tests) $(unit_tests_sim) $(unit_tests_slurm) $(unit_tests_k8s) $(unit_tests_daemon) $(unit_tests_hook) $(if $(SAN),,$(unit_tests_simgpu))

.PHONY: check
check: check-unit check-sim check-house check-flaky check-preload check-e2e check-api check-service check-kubernetes check-k8s ## all tests that a change needs


# Unit tests wait more than they compute, but not under a sanitizer.
UNIT_JOBS ?= $(shell echo $$(($$(nproc) * $(if $(SAN),1,2))))
.PHONY: check-unit
check-unit: $(ALL_UNIT_TESTS) ## unit tests of every module (add SAN=address,undefined or SAN=thread)
	@PYTHON=$(PYTHON) scripts/run-tests $(UNIT_JOBS) $(B)/logs $(ALL_UNIT_TESTS)

# Simulation of scheduler and leases: one seed is the whole run. Replay: make sim SEED=n SEEDS=1
SEED  ?= 1
SEEDS ?= $(if $(SAN),60,200)
.PHONY: sim sim-fresh check-sim check-sim-sched check-sim-gangs check-sim-share check-sim-jobs check-sim-orion check-sim-pool check-exhaustive check-exhaustive-gangs \
    check-exhaustive-share check-exhaustive-jobs sim-fleet check-fleet
$(sim_programs): $(B)/tests/sim/%: $(B)/tests/sim/%.o $(B)/libtest.a $(B)/libcore.a
	$(LINK) -o $@ $^ -lm
# A search copies its world at each step: three clients, not as many as there can be.
$(B)/tests/sim/exhaustive: $(patsubst %,$(B)/tests/sim/small/%.o,exhaustive world world_client world_turns world_users) $(B)/libtest.a $(B)/libcore.a
	$(LINK) -o $@ $^
# exhaustive with more clients, which are in gangs on two cards.
$(B)/tests/sim/exhaustive_gangs: $(patsubst %,$(B)/tests/sim/gangs/%.o,exhaustive world world_client world_turns world_users) $(B)/libtest.a $(B)/libcore.a
	$(LINK) -o $@ $^
# sim_sched on a node of eight cards, with gangs of two to eight.
$(B)/tests/sim/sim_gangs: $(patsubst %,$(B)/tests/sim/wide/%.o,sim_sched sim_program sim_queue world world_client world_turns world_users) $(B)/libtest.a $(B)/libcore.a
	$(LINK) -o $@ $^ -lm
$(B)/tests/sim/wide/%.o: tests/sim/%.c
	@mkdir -p $(@D)
	$(COMPILE) -DWORLD_WIDE -c -o $@ $<
$(B)/tests/sim/gangs/%.o: tests/sim/%.c
	@mkdir -p $(@D)
	$(COMPILE) -DWORLD_SMALL -DWORLD_GANGS -c -o $@ $<
$(B)/tests/sim/small/%.o: tests/sim/%.c
	@mkdir -p $(@D)
	$(COMPILE) -DWORLD_SMALL -c -o $@ $<
SIMS ?= sched gangs share jobs orion pool
sims := $(SIMS:%=$(B)/tests/sim/sim_%)
sim: $(sims) ## simulate SEEDS seeds from SEED on
	@for program in $(sims); do $$program $(SEED) $(SEEDS) || exit; done
# Each day has ten thousand seeds of its own. SIMS: some of the programs.
sim-fresh: SEED = $(shell date +%Y%m%d)0000
sim-fresh: SEEDS = 5000
sim-fresh: $(sims) ## simulate seeds that nobody has run, on all processors
	@scripts/sim-fresh $(SEED) $(SEEDS) $(sims)
# Each program has one thread and no clock, so make -j may run them side by side.
check-sim: check-corpus check-sim-sched check-sim-gangs check-sim-share check-sim-jobs check-sim-orion check-sim-pool check-fleet check-exhaustive check-exhaustive-gangs \
    check-exhaustive-share check-exhaustive-jobs
# Seeds that have found a fault follow the others.
found_sched := 7770231 20271516
found_gangs := 7770203 20271471 202611290170
found_jobs  := 7770011 7770012 7770680 7772112
run_found = $(foreach seed,$(found_$(1)),$(B)/tests/sim/sim_$(1) $(seed) 1 &&) true
check-sim-sched: $(B)/tests/sim/sim_sched
	$< $(SEED) $(SEEDS)
	$(call run_found,sched)
check-sim-share: $(B)/tests/sim/sim_share
	$< $(SEED) $(if $(SAN),12,100)
check-sim-jobs: $(B)/tests/sim/sim_jobs
	$< $(SEED) $(if $(SAN),10,40)
	$(call run_found,jobs)
check-sim-orion: $(B)/tests/sim/sim_orion
	$< $(SEED) $(if $(SAN),20,200)
check-sim-pool: $(B)/tests/sim/sim_pool
	$< $(SEED) $(if $(SAN),2,20)
# All ways twice, with every assertion after each step.
check-fleet: $(B)/tests/sim/sim_fleet
	$< --nodes $(if $(SAN),4,20) --hours 3 --load 2 --check
sim-fleet: $(B)/tests/sim/sim_fleet ## 1,000 nodes of 8 GPUs for a day, shared in four ways
	$<
check-sim-gangs: $(B)/tests/sim/sim_gangs
	$< $(SEED) $(if $(SAN),60,600)
	$(call run_found,gangs)
check-exhaustive: $(B)/tests/sim/exhaustive
	$< $(if $(SAN),5,6)
check-exhaustive-gangs: $(B)/tests/sim/exhaustive_gangs
	$< $(if $(SAN),4,5)
check-exhaustive-share: $(B)/tests/sim/exhaustive_share
	$< $(if $(SAN),4,5)
check-exhaustive-jobs: $(B)/tests/sim/exhaustive_jobs
	$< $(if $(SAN),4,6)

# Every interleaving of three clients. Of the scheduler, 7 moves take 40 s, and each further move four times
# that. Of shares of time, 6 moves take 150 s, and each further move seven times that. Of jobs, 8 moves take
# 30 s, and each further move five times that.
DEPTH ?= 8
.PHONY: exhaustive exhaustive-gangs exhaustive-share exhaustive-jobs
exhaustive: $(B)/tests/sim/exhaustive ## every interleaving of three clients, DEPTH moves deep
	$< $(DEPTH)
exhaustive-gangs: $(B)/tests/sim/exhaustive_gangs ## the same of two gangs and a client on two cards
	$< $(DEPTH)
exhaustive-share: $(B)/tests/sim/exhaustive_share ## the same of shares of a GPU's time
	$< $(DEPTH)
exhaustive-jobs: $(B)/tests/sim/exhaustive_jobs ## the same of four jobs
	$< $(DEPTH)

# Fuzzers: libFuzzer, with clang. Every check replays their corpus, with any compiler.
fuzzers := $(filter-out $(if $(has_k8s),,grpc methods),$(patsubst tests/fuzz/fuzz_%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c))))
replays := $(fuzzers:%=$(B)/tests/fuzz/replay_%)
$(replays): $(B)/tests/fuzz/replay_%: $(B)/tests/fuzz/fuzz_%.o $(B)/tests/fuzz/replay.o $(libs)
	$(LINK) -o $@ $(filter %.o,$^) $(libs) $(fuzz_libs)
$(B)/tests/fuzz/replay_pod: $(B)/src/daemon/peers/pod_cgroup.o
$(B)/tests/fuzz/fuzz_pod: src/daemon/peers/pod_cgroup.c
$(B)/tests/fuzz/replay_config: $(B)/src/daemon/settings/config_file.o
$(B)/tests/fuzz/fuzz_config: src/daemon/settings/config_file.c
$(B)/tests/fuzz/replay_config $(B)/tests/fuzz/fuzz_config: fuzz_libs = $(YAML_LIBS)
$(B)/tests/fuzz/replay_journal: $(B)/src/daemon/jobs/job_record.o
$(B)/tests/fuzz/fuzz_journal: src/daemon/jobs/job_record.c
k8s_replays := $(addprefix $(B)/tests/fuzz/replay_,grpc methods)
k8s_fuzzers := $(addprefix $(B)/tests/fuzz/fuzz_,grpc methods)
$(k8s_replays): $(B)/libk8s.a
$(k8s_replays): fuzz_libs = $(B)/libk8s.a $(libs) $(K8S_LIBS)
$(k8s_fuzzers): fuzz_libs = $(K8S_LIBS)
$(k8s_fuzzers): private override NVS_CPPFLAGS += -isystem $(B)/src -DNVSHARE_LIBDIR='"$(LIBDIR)"'
$(k8s_fuzzers): $(filter-out %/main.c,$(call src,k8s)) $(B)/src/k8s/deviceplugin.pb-c.c
$(k8s_fuzzers:=.o): override CPPFLAGS += -isystem $(B)/src
$(k8s_fuzzers:=.o): | $(B)/src/k8s/deviceplugin.pb-c.h

core_fuzzers := $(filter-out $(k8s_fuzzers),$(fuzzers:%=$(B)/tests/fuzz/fuzz_%))
# What they share is compiled once.
fuzzed = $(patsubst %.c,$(B)/fuzzed/%.o,$(1))
$(B)/fuzzed/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(NVS_CPPFLAGS) -std=gnu11 -g -O1 -pthread -fsanitize=fuzzer-no-link,address,undefined -MMD -MP -c -o $@ $<
$(core_fuzzers): $(call fuzzed,$(call src,core) $(call src,core/*))
$(core_fuzzers) $(k8s_fuzzers): $(B)/tests/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(call fuzzed,$(call src,ipc) $(call src,util))
	@mkdir -p $(@D)
	$(CC) $(NVS_CPPFLAGS) -std=gnu11 -g -O1 -pthread -fsanitize=fuzzer,address,undefined -o $@ $^ $(fuzz_libs)

TIME ?= 60
.PHONY: fuzz check-corpus
fuzz: $(fuzzers:%=$(B)/tests/fuzz/fuzz_%) ## libFuzzer, TIME seconds each (needs CC=clang)
	@set -e; for f in $(fuzzers); do mkdir -p $(B)/corpus/$$f; \
	    $(B)/tests/fuzz/fuzz_$$f -max_total_time=$(TIME) -verbosity=0 -print_final_stats=1 \
	        -artifact_prefix=$(B)/corpus/ $(B)/corpus/$$f tests/fuzz/corpus_$$f; done
check-corpus: $(replays)
	@set -e; for f in $(fuzzers); do $(B)/tests/fuzz/replay_$$f tests/fuzz/corpus_$$f; done

# The libraries that preload tests put before, behind and under libnvshare.so.
fixtures := $(addprefix $(B)/tests/hook/preload/,fake/libcuda.so.1 libchain1.so libchain2.so \
    libchain3.so libtrap.so libwalker.so starter probe probe_linked probe_static leaver libleaver.so \
    libearly.so $(addprefix sanitized/,address thread address-inside thread-inside) \
    secure capturer green frozen new_by_old/libnvidia-ml.so.1 old_by_new/libnvidia-ml.so.1)
$(B)/tests/hook/preload/fake/libcuda.so.1: tests/hook/preload/fake_libcuda.c tests/hook/preload/fake_lookup.c src/hook/table/cuda_hooks.def
	@mkdir -p $(@D)
	$(LINK) $(NVS_CPPFLAGS) -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -o $@ $(filter %.c,$^)
nvml_old_by_new := -DSELF_OLD_BY_NEW
$(B)/tests/hook/preload/%/libnvidia-ml.so.1: tests/hook/preload/nvml_self.c
	@mkdir -p $(@D)
	$(LINK) $(NVS_CPPFLAGS) $(nvml_$*) -shared -Wl,-soname,libnvidia-ml.so.1 -o $@ $<
chain_libchain1 := -DCHAIN_NUMBER=1 -DCHAIN_ALLOC
chain_libchain2 := -DCHAIN_NUMBER=2 -DCHAIN_DLSYM
chain_libchain3 := -DCHAIN_NUMBER=3 -DCHAIN_LAST
$(B)/tests/hook/preload/libchain%.so: tests/hook/preload/chain.c
	@mkdir -p $(@D)
	$(LINK) $(NVS_CPPFLAGS) $(chain_libchain$*) -shared -o $@ $< -ldl
# All that the library takes from the C library, but data and what may lack.
$(B)/tests/hook/preload/trap_names.h: $(B)/libnvshare.so
	@mkdir -p $(@D)
	nm -D --undefined-only $< | awk '$$1 == "U" && $$2 !~ /^_r_debug/ { sub(/@.*/, "", $$2); print "TRAP(" $$2 ")" }' >$@
$(B)/tests/hook/preload/libtrap.so: tests/hook/preload/trap.c $(B)/tests/hook/preload/trap_names.h
	$(LINK) -fno-builtin -I$(@D) -shared -o $@ $<
$(B)/tests/hook/preload/libwalker.so: tests/hook/preload/walker.c
	@mkdir -p $(@D)
	$(LINK) $(NVS_CPPFLAGS) -shared -o $@ $< -ldl
$(B)/tests/hook/preload/starter: tests/hook/preload/starter.c
	@mkdir -p $(@D)
	$(LINK) $(NVS_CPPFLAGS) -o $@ $< -ldl
$(B)/tests/hook/preload/probe: tests/hook/preload/probe.c src/hook/table/cuda_hooks.def
	@mkdir -p $(@D)
	$(LINK) $(NVS_CPPFLAGS) -o $@ $< -ldl
$(B)/tests/hook/preload/probe_linked: tests/hook/preload/probe.c $(B)/tests/hook/preload/fake/libcuda.so.1
	$(LINK) $(NVS_CPPFLAGS) -DPROBE_LINKED -o $@ $^ -ldl
$(B)/tests/hook/preload/probe_static: tests/hook/preload/probe_static.c
	@mkdir -p $(@D)
	$(LINK) $(NVS_CPPFLAGS) -static -o $@ $<
$(B)/tests/hook/preload/secure: tests/hook/preload/secure.c $(B)/libnvshare.so $(B)/simgpu/libcuda.so.1
	@mkdir -p $(@D)
	$(LINK) $(NVS_CPPFLAGS) -o $@ $^ -Wl,-rpath,$(abspath $(B)):$(abspath $(B)/simgpu)
# Programs with the runtime of a sanitizer, as a library and inside the program.
$(B)/tests/hook/preload/sanitized/%: tests/hook/preload/leaver.c $(B)/libapp.a
	@mkdir -p $(@D)
	$(LINK) $(NVS_CPPFLAGS) -fsanitize=$(firstword $(subst -, ,$*)) \
	    $(if $(findstring -inside,$*),-static-libasan -static-libtsan) -o $@ $^ -ldl -lm
$(addprefix $(B)/tests/hook/preload/,leaver capturer green frozen): $(B)/tests/hook/preload/%: $(B)/tests/hook/preload/%.o $(B)/libapp.a
	$(LINK) -o $@ $^ -ldl -lm
$(B)/tests/hook/preload/libleaver.so $(B)/tests/hook/preload/libearly.so: $(B)/tests/hook/preload/lib%.so: \
    $(B)/tests/hook/preload/%.o $(B)/libapp.a
	$(LINK) -shared -o $@ $^ -ldl -lm

# End to end: real programs, the real scheduler, the simulated GPU.
# The end-to-end tests wait more than they compute, and decide nothing by the clock: several at a time
# where pytest-xdist is there; of the slow ones, which compute more, fewer.
HAS_XDIST = $(shell $(PYTHON) -c 'import xdist' 2>/dev/null && echo 1)
XDIST      = $(if $(HAS_XDIST),-n 6)
XDIST_SLOW = $(if $(HAS_XDIST),-n 3)
PYTEST = NVSHARE_BUILD=$(abspath $(B)) PYTHON=$(PYTHON) scripts/run-pytest
.PHONY: check-flaky check-preload check-e2e check-api check-service check-kubernetes check-containers check-k8s check-operator check-e2e-slow check-e2e-deep check-gang-schedules check-prometheus check-slurm
# What runs the other tests judges no test of itself.
check-flaky: ## tests that fail run again, and what is never flaky
	$(PYTHON) -m pytest -q -p no:cacheprovider tests/flaky
check-preload: all apps $(fixtures)
	$(PYTEST) $(XDIST) tests/hook/preload
# With the library that looks at the order of its mutexes; check-e2e-slow has the one that is installed.
check-e2e: all apps $(B)/checked/libnvshare.so
	NVSHARE_LIBRARY=$(abspath $(B)/checked/libnvshare.so) $(PYTEST) $(XDIST) -m 'not slow and not deep' tests/e2e
check-api: all apps ## what programs may call: Python, C++
	$(PYTEST) tests/python
	$(PYTEST) tests/cpp
check-service: all apps ## the units, and the scheduler under their rights
	$(PYTEST) tests/service
check-kubernetes: all images ## the manifests by real schemas, the images' inputs
	$(PYTEST) tests/kubernetes
check-containers: all apps images ## two pods of containerd and runc on one GPU (needs root)
	$(PYTEST) tests/containers
# Hostile peers meet the plugin that sanitizers watch.
CHECKED_PLUGIN = $(BUILD)/address-undefined/nvshare-device-plugin
check-k8s: all $(B)/tests/apps/oversub ## the device plugin and a fake kubelet
	$(MAKE) SAN=address,undefined $(CHECKED_PLUGIN)
	NVSHARE_CHECKED_PLUGIN=$(abspath $(CHECKED_PLUGIN)) $(PYTEST) $(XDIST) tests/k8s
check-operator: all apps ## a new user's way through the documents, from the sources (needs root)
	$(PYTEST) -m 'not slow' tests/operator
check-e2e-slow: all apps
	$(PYTEST) $(XDIST_SLOW) -m slow tests/e2e
check-e2e-deep: all apps $(B)/checked/libnvshare.so
	NVSHARE_LIBRARY=$(abspath $(B)/checked/libnvshare.so) $(PYTEST) $(XDIST_SLOW) -m deep tests/e2e
check-gang-schedules: all apps $(B)/checked/libnvshare.so ## gangs in random company, 50 seeds
	NVSHARE_SCHEDULES=50 NVSHARE_LIBRARY=$(abspath $(B)/checked/libnvshare.so) $(PYTEST) $(XDIST_SLOW) tests/e2e/test_gang_schedules.py
check-slurm: all apps ## the plugin in a real Slurm of two nodes (needs root, and Debian's packages of Slurm)
	$(PYTEST) tests/slurm
check-prometheus: all ## a real Prometheus with the dashboard's queries and the alerts
	$(PYTEST) tests/prometheus

# Benchmarks print figures and judge none, because other work on the machine would decide.
benches := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/bench/bench_*.c)))
$(benches): $(B)/tests/bench/%: $(B)/tests/bench/%.o $(B)/tests/bench/timing.o $(B)/libhook.a $(B)/libprograms.a $(libs)
	$(LINK) -o $@ $^ $(DAEMON_LIBS)

# The plots in tests/sim/results; needs python3-matplotlib (scripts/setup plot).
.PHONY: plot-sim plot-fleet
plot-fleet: $(B)/tests/sim/sim_fleet ## tables and a picture of the fleet
	$(PYTHON) tests/sim/plot_fleet.py $< tests/sim/results
plot-sim: $(B)/nvshare-sim ## PNGs of the simulation: latency against throughput, and against theory
	$(PYTHON) tests/sim/plot_sim.py $< tests/sim/results

.PHONY: bench benches
benches: $(benches)
bench: all apps $(benches) ## costs of the gate, of a launch, of a decision, beside other tools, of metrics
	@set -e; for b in $(benches); do $$b; done
	tests/bench/bench_launch $(abspath $(B))
	$(PYTHON) tests/bench/bench_tools $(abspath $(B))
	$(PYTHON) tests/bench/bench_http $(abspath $(B))
	$(PYTHON) tests/bench/bench_queue $(abspath $(B))

# Only the costs of decisions are kept, as the minimum of several runs.
DECISIONS = tests/bench/results/decisions.txt
.PHONY: bench-decisions
bench-decisions: $(B)/tests/bench/bench_share $(B)/tests/bench/bench_policy $(B)/tests/bench/bench_jobs ## writes the costs of decisions to tests/bench/results
	{ date -u '+%Y-%m-%d %H:%M UTC, by make bench-decisions' && \
	  printf '%s, %s processors' "$$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" "$$(nproc)" && \
	  printf ', load %s before\n' "$$(cut -d' ' -f1 /proc/loadavg)" && \
	  $(CC) --version | head -n 1 && printf 'CFLAGS %s\n' '$(CFLAGS)' && \
	  for b in $^; do printf '\n' && $$b || exit 1; done; } >$(DECISIONS).new
	mv $(DECISIONS).new $(DECISIONS)

# ---- house -----------------------------------------------------------------

.PHONY: check-house check-driver-table driver-table check-includes check-settings check-words check-names
check-house: check-includes check-core check-exports check-abi check-simgpu-exports check-driver-table check-glibc check-settings check-words check-names ## structure, exports, ABI, documents, comments
check-includes:
	scripts/check-includes
# All of the code's tables, as the manual has them; of the programs it takes what it needs.
$(B)/src/man/settings_rows: $(B)/src/man/settings_rows.o $(B)/src/k8s/plugin_options.o $(B)/libhook.a $(B)/libprograms.a $(libs)
	$(LINK) -o $@ $^ $(DAEMON_LIBS)
check-settings: $(B)/src/man/settings_rows ## the manual pages have the settings, defaults and limits of the code
	scripts/check-settings $<
check-words:
	scripts/check-words
check-names: ## the documents name functions and files that exist
	scripts/check-names

.PHONY: check-core
check-core: $(core_obj) ## the core only calls itself, mem*() and assert()
	@nm --defined-only $^ | sed -n 's/^[0-9a-f]* [A-Z] //p' | sort -u >$(B)/core.defined
	@bad=$$(nm -u $^ | sed -n 's/^ *U //p' | sort -u | grep -vxFf $(B)/core.defined | \
	    grep -vxE 'mem(set|cpy|move|cmp)|__(assert_fail|stack_chk_fail|(asan|ubsan|tsan)_.*)'); \
	if [ -n "$$bad" ]; then echo "src/core calls out: $$bad"; exit 1; fi; echo "check-core: ok"

.PHONY: check-exports check-glibc check-abi check-simgpu-exports
check-exports: $(B)/libnvshare.so
	scripts/check-exports $<
check-glibc: $(B)/libnvshare.so
	scripts/check-glibc $<
check-abi:
	CC="$(CC)" scripts/check-abi $(B)/tests/abi $(CUDA_HOME)/include
check-simgpu-exports: $(B)/simgpu/libcuda.so.1
	scripts/check-simgpu-exports $<
check-driver-table: ## the library knows every function of the driver
	CC="$(CC)" scripts/check-driver-table $(CUDA_HOME)/include
driver-table: ## write src/hook/table/README.md
	CC="$(CC)" scripts/check-driver-table $(CUDA_HOME)/include --write

c_files := $(wildcard src/*/*.[ch] src/*/*/*.[ch] include/nvshare/*.h include/nvshare/*.hpp tests/*/*.[ch] tests/cpp/*.cpp tests/*/*/*.[ch])
.PHONY: check-format check-lint format
check-format: ## clang-format would change no file
	clang-format --dry-run --Werror $(c_files)
format: ## formats all files with clang-format
	clang-format -i $(c_files)
check-lint:
	cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --error-exitcode=1 \
	    --suppress=missingIncludeSystem --suppress='*:/usr/include/*' --include=/usr/include/utlist.h \
	    -D__x86_64__ '-DSPANK_PLUGIN(name,version)=' '-DPAGE_SCRIPT_HASH=""' '-DPAGE_STYLE_HASH=""' '-DElfW(type)=Elf64_##type' $(NVS_CPPFLAGS) $(filter %.c,$(filter src/%,$(c_files)))
	shellcheck $(wildcard scripts/* kubernetes/images/install-library tests/gpu/run tests/gpu/rehearse tests/gpu/contained tests/operator/systemctl) .ci/run

.PHONY: install uninstall check-install deb check-deb check-aarch64 check-aarch64-library print-version clean help
# Fills in the folders of FILE.in, as the file named second.
fill_in = sed 's|@PREFIX@|$(PREFIX)|; s|@BINDIR@|$(BINDIR)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|; \
    s|@VERSION@|$(VERSION)|' $(1).in >$(2)
# The library and its link are renamed into place: at each moment new programs find a whole library,
# and running ones keep the file that they have.
library := libnvshare.so.$(VERSION)
install: all ## DESTDIR, PREFIX, BINDIR, LIBDIR, INCLUDEDIR, MANDIR, PYTHONDIR, UNITDIR, SLURMDIR
	$(INSTALL) -D -m 755 $(B)/nvshare-scheduler $(DESTDIR)$(BINDIR)/nvshare-scheduler
	$(INSTALL) -D -m 755 $(B)/nvsharectl $(DESTDIR)$(BINDIR)/nvsharectl
	$(if $(has_k8s),$(INSTALL) -D -m 755 $(B)/nvshare-device-plugin $(DESTDIR)$(BINDIR)/nvshare-device-plugin)
	$(INSTALL) -D -m 755 $(B)/libnvshare.so $(DESTDIR)$(LIBDIR)/$(library).new
	mv -f $(DESTDIR)$(LIBDIR)/$(library).new $(DESTDIR)$(LIBDIR)/$(library)
	ln -sf $(library) $(DESTDIR)$(LIBDIR)/libnvshare.so.new
	mv -fT $(DESTDIR)$(LIBDIR)/libnvshare.so.new $(DESTDIR)$(LIBDIR)/libnvshare.so
	ln -sf libnvshare.so $(DESTDIR)$(LIBDIR)/libgpu_scheduler.so
	$(if $(slurm_spank),$(INSTALL) -D -m 755 $(slurm_spank) $(DESTDIR)$(SLURMDIR)/nvshare_spank.so.new && \
	    mv -f $(DESTDIR)$(SLURMDIR)/nvshare_spank.so.new $(DESTDIR)$(SLURMDIR)/nvshare_spank.so)
	$(INSTALL) -D -m 755 $(B)/simgpu/libcuda.so.1 $(DESTDIR)$(LIBDIR)/nvshare/simgpu/libcuda.so.1
	$(INSTALL) -D -m 755 $(B)/simgpu/libnvidia-ml.so.1 $(DESTDIR)$(LIBDIR)/nvshare/simgpu/libnvidia-ml.so.1
	for h in nvshare.h nvshare.hpp orion.h claim.h protocol.h messages.def version.h; do \
	    $(INSTALL) -D -m 644 include/nvshare/$$h $(DESTDIR)$(INCLUDEDIR)/nvshare/$$h || exit 1; done
	for f in $(notdir $(wildcard src/python/nvshare/*.py*)); do \
	    $(INSTALL) -D -m 644 src/python/nvshare/$$f $(DESTDIR)$(PYTHONDIR)/nvshare/$$f || exit 1; done
	$(if $(man_tool),for p in $(man_pages); do \
	    $(INSTALL) -D -m 644 $(B)/man/$$p $(DESTDIR)$(MANDIR)/man$${p##*.}/$$p && \
	    sed -i 's|/usr/local/lib/|$(LIBDIR)/|g; s|/usr/local/include/|$(INCLUDEDIR)/|g' $(DESTDIR)$(MANDIR)/man$${p##*.}/$$p || exit 1; done)
	$(INSTALL) -D -m 644 src/cli/completion/nvsharectl.bash $(DESTDIR)$(BASHDIR)/nvsharectl
	$(INSTALL) -D -m 644 src/cli/completion/nvsharectl.zsh $(DESTDIR)$(ZSHDIR)/_nvsharectl
	$(INSTALL) -D -m 644 src/cli/completion/nvsharectl.fish $(DESTDIR)$(FISHDIR)/nvsharectl.fish
	for f in nvshare-alerts.yaml nvshare-dashboard.json; do \
	    $(INSTALL) -D -m 644 src/monitoring/$$f $(DESTDIR)$(DATADIR)/$$f || exit 1; done
	$(INSTALL) -D -m 644 src/service/nvshare.yaml $(DESTDIR)$(DATADIR)/nvshare.yaml
	$(INSTALL) -d $(DESTDIR)$(PKGCONFIGDIR)
	$(call fill_in,include/nvshare.pc,$(DESTDIR)$(PKGCONFIGDIR)/nvshare.pc)
	$(INSTALL) -D -m 644 src/service/nvshare-scheduler.socket $(DESTDIR)$(UNITDIR)/nvshare-scheduler.socket
	$(call fill_in,src/service/nvshare-scheduler.service,$(DESTDIR)$(UNITDIR)/nvshare-scheduler.service)
	$(INSTALL) -D -m 644 src/service/nvshare.sysusers $(DESTDIR)$(SYSUSERSDIR)/nvshare.conf
	$(INSTALL) -D -m 644 src/service/nvshare.tmpfiles $(DESTDIR)$(TMPFILESDIR)/nvshare.conf

uninstall:
	rm -f $(DESTDIR)$(BINDIR)/nvshare-scheduler $(DESTDIR)$(BINDIR)/nvsharectl $(DESTDIR)$(BINDIR)/nvshare-device-plugin \
	    $(DESTDIR)$(SLURMDIR)/nvshare_spank.so \
	    $(DESTDIR)$(LIBDIR)/libnvshare.so $(DESTDIR)$(LIBDIR)/libnvshare.so.* $(DESTDIR)$(LIBDIR)/libgpu_scheduler.so \
	    $(DESTDIR)$(PKGCONFIGDIR)/nvshare.pc \
	    $(DESTDIR)$(UNITDIR)/nvshare-scheduler.service $(DESTDIR)$(UNITDIR)/nvshare-scheduler.socket \
	    $(DESTDIR)$(SYSUSERSDIR)/nvshare.conf $(DESTDIR)$(TMPFILESDIR)/nvshare.conf \
	    $(DESTDIR)$(BASHDIR)/nvsharectl $(DESTDIR)$(ZSHDIR)/_nvsharectl $(DESTDIR)$(FISHDIR)/nvsharectl.fish
	rm -rf $(DESTDIR)$(LIBDIR)/nvshare $(DESTDIR)$(DATADIR) $(DESTDIR)$(INCLUDEDIR)/nvshare $(DESTDIR)$(PYTHONDIR)/nvshare
	for p in $(man_pages); do rm -f $(DESTDIR)$(MANDIR)/man$${p##*.}/$$p || exit 1; done

check-install: all apps ## installs into an empty folder, and runs the demo's job from there
	scripts/check-install $(abspath $(B))

# A package is a build of its own, with Debian's flags.
deb: ## Debian packages, in build/deb
	scripts/deb $(VERSION) $(BUILD)/deb
check-deb: deb all apps ## lintian, and a new user's way with packages in a clean Debian 12 (needs root and a mirror)
	NVSHARE_BUILD=$(abspath $(B)) scripts/check-deb $(BUILD)/deb
check-aarch64: ## cross compiles the library, and unit tests that run under qemu-user (needs a mirror)
	scripts/check-aarch64 $(BUILD)/aarch64
check-aarch64-library: ## cross compiles the library
	scripts/check-aarch64 $(BUILD)/aarch64 library

print-version:
	@echo $(VERSION)

clean:
	rm -rf $(BUILD)

help:
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST)

-include $(shell find $(B) -name '*.d' 2>/dev/null)
