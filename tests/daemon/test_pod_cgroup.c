/* SPDX-License-Identifier: Apache-2.0 */

/* Which pod a process is in, by its control groups. */

#include "daemon/peers/pod_cgroup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DASHED "4ed02c0b-0df8-4d14-a30e-fd589ee4143a"
#define SYSTEM "4ed02c0b_0df8_4d14_a30e_fd589ee4143a"
#define OTHER  "4ed02c0b-0df8-4d14-a30e-fd589ee41430"
#define STATIC "87a960e902bbb19289771a77e4b07353"
#define ID     "d4a9f9195eaf7e4a729f24151101e1de61f1398677e7b82acfb936dff0b4ce55"

static int parse(const char *text, struct pod_cgroup *ret)
{
	return pod_cgroup_parse(text, strlen(text), ret);
}

static void every_driver_and_runtime_is_known(void **state)
{
	static const struct {
		const char *text, *uid, *container;
	} rows[] = {
		/* v2: cgroupfs and systemd, each class, each runtime. */
		{"0::/kubepods/burstable/pod" DASHED "/" ID "\n", DASHED, ID},
		{"0::/kubepods/besteffort/pod" DASHED "/" ID "\n", DASHED, ID},
		{"0::/kubepods/pod" DASHED "/" ID "\n", DASHED, ID},
		{"0::/kubepods/pod" DASHED "/crio-" ID "\n", DASHED, ID},
		{"0::/kubepods/pod" DASHED "/crio-" ID "/container\n", DASHED, ID},
		{"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" SYSTEM
		 ".slice/cri-containerd-" ID ".scope\n",
		 DASHED, ID},
		{"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" SYSTEM
		 ".slice/crio-" ID ".scope\n",
		 DASHED, ID},
		{"0::/kubepods.slice/kubepods-pod" SYSTEM ".slice/docker-" ID ".scope", DASHED, ID},
		{"0::/kubepods.slice/kubepods-pod" SYSTEM ".slice/crio-" ID ".scope/init.scope\n",
		 DASHED, ID},
		/* A static pod. */
		{"0::/kubepods/burstable/pod" STATIC "/" ID "\n", STATIC, ID},
		{"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" STATIC
		 ".slice/cri-containerd-" ID ".scope\n",
		 STATIC, ID},
		/* --cgroup-root. */
		{"0::/kubelet/kubepods/besteffort/pod" DASHED "/" ID "\n", DASHED, ID},
		{"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
		 "kubelet-kubepods-burstable-pod" SYSTEM ".slice/cri-containerd-" ID ".scope\n",
		 DASHED, ID},
		/* Seen from within another pod, of the same class or not. */
		{"0::/../../kubepods-besteffort-pod" SYSTEM ".slice/docker-" ID ".scope\n", DASHED,
		 ID},
		{"0::/../../../kubepods-pod" SYSTEM ".slice/cri-containerd-" ID ".scope\n", DASHED,
		 ID},
		{"0::/../../../burstable/pod" DASHED "/" ID "\n", DASHED, ID},
		{"0::/../../pod" DASHED "/" ID "\n", DASHED, ID},
		/* A kubelet for systemd with a containerd for cgroupfs, v1 and v2. */
		{"11:memory:/system.slice/containerd.service/kubepods-burstable-pod" SYSTEM
		 ".slice:cri-containerd:" ID "\n1:name=systemd:/system.slice/containerd.service/"
		 "kubepods-burstable-pod" SYSTEM ".slice:cri-containerd:" ID
		 "\n0::/system.slice/containerd.service\n",
		 DASHED, ID},
		{"11:memory:/kubepods-burstable-pod" SYSTEM ".slice:cri-containerd:" ID "\n",
		 DASHED, ID},
		/* v1, and v1 with v2 beside it. */
		{"3:cpuset:/kubepods/pod" DASHED "/" ID "\n2:cpu,cpuacct:/kubepods/pod" DASHED
		 "/" ID "\n",
		 DASHED, ID},
		{"2:cpu:/\n1:name=systemd:/kubepods/pod" DASHED "/" ID "\n0::/\n", DASHED, ID},
		/* Beside the containers; nested pods are the outermost one's. */
		{"0::/kubepods/pod" DASHED "\n", DASHED, ""},
		{"0::/kubepods.slice/kubepods-pod" SYSTEM ".slice/crio-conmon-" ID ".scope\n",
		 DASHED, ""},
		{"2:cpu:/kubepods/pod" DASHED "\n1:memory:/kubepods/pod" DASHED "/" ID "\n", DASHED,
		 ID},
		{"0::/kubepods/pod" DASHED "/" ID "/kubepods/pod" OTHER "/" ID "\n", DASHED, ID},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct pod_cgroup pod;

		if (parse(rows[i].text, &pod))
			fail_msg("no pod in: %s", rows[i].text);
		assert_string_equal(pod.uid, rows[i].uid);
		assert_string_equal(pod.container, rows[i].container);
	}
}

static void others_are_in_no_pod(void **state)
{
	static const char *const texts[] = {
		"",
		"\n",
		"0::/\n",
		"0::\n",
		"0::/..\n",
		"0::/init.scope\n",
		"0::/system.slice/docker-" ID ".scope\n",
		"0::/docker/" ID "\n",
		"0::/../cri-containerd-" ID ".scope\n",
		"0::/user.slice/user-1000.slice/session-1.scope\n",
		/* A user owns a part of the tree, and chooses the names there. */
		"0::/user.slice/user-1000.slice/user@1000.service/kubepods/pod" DASHED "/" ID "\n",
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/kubepods.slice/"
		"kubepods-pod" SYSTEM ".slice/cri-containerd-" ID ".scope\n",
		"0::/../../../user.slice/pod" DASHED "/" ID "\n",
		"0::/system.slice/mine.service/kubepods/pod" DASHED "/" ID "\n",
		"0::/user/1000/pod" DASHED "/" ID "\n",
		/* Not a UID. */
		"0::/kubepods/pod/" ID "\n",
		"0::/kubepods/pod" SYSTEM "/" ID "\n",
		"0::/kubepods/pod4ED02C0B-0df8-4d14-a30e-fd589ee4143a/" ID "\n",
		"0::/kubepods/pod4ed02c0b-0df8-4d14-a30e-fd589ee4143/" ID "\n",
		"0::/kubepods/pod" DASHED "0/" ID "\n",
		"0::/kubepods.slice/kubepods-pod" DASHED ".slice/cri-containerd-" ID ".scope\n",
		"0::/kubepods.slice/pods-pod" SYSTEM ".slice/cri-containerd-" ID ".scope\n",
		"0::/kubepods.slice/kubepods-guaranteed-pod" SYSTEM ".slice/" ID "\n",
		"kubepods/pod" DASHED "/" ID "\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct pod_cgroup pod = {.uid = "as before"};

		if (parse(texts[i], &pod) != POD_CGROUP_E_NONE)
			fail_msg("a pod in: %s", texts[i]);
		assert_string_equal(pod.uid, "as before");
	}
}

static void two_pods_are_a_conflict(void **state)
{
	struct pod_cgroup pod = {.uid = "as before"};

	(void)state;
	assert_int_equal(parse("2:cpu:/kubepods/pod" DASHED "/" ID "\n1:memory:/kubepods/pod" OTHER
			       "/" ID "\n",
			       &pod),
			 POD_CGROUP_E_CONFLICT);
	assert_string_equal(pod.uid, "as before");
}

/* Each file that was cut, and each with one byte changed, names the same pod or none. */
static void a_broken_file_names_no_other_pod(void **state)
{
	static const char text[] =
		"1:cpu:/kubepods.slice/kubepods-pod" SYSTEM ".slice/cri-containerd-" ID ".scope\n";
	char copy[sizeof(text)];
	struct pod_cgroup pod;

	(void)state;
	for (size_t i = 0; i < sizeof(text) - 1; i++) {
		if (!pod_cgroup_parse(text, i, &pod))
			assert_string_equal(pod.uid, DASHED);
		memcpy(copy, text, sizeof(text));
		copy[i] = '\0';
		if (!pod_cgroup_parse(copy, sizeof(text) - 1, &pod))
			assert_string_equal(pod.uid, DASHED);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_driver_and_runtime_is_known),
		cmocka_unit_test(others_are_in_no_pod),
		cmocka_unit_test(two_pods_are_a_conflict),
		cmocka_unit_test(a_broken_file_names_no_other_pod),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
