# SPDX-License-Identifier: Apache-2.0
"""kubernetes/: every folder renders to objects that Kubernetes takes, with no more rights than the pages say."""

import copy
import json
import os
import pathlib
import re
import shutil
import subprocess

import kustomize
import pytest
import schema
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "kubernetes"
IMAGES = ROOT / "build" / "images"
RENDERED = sorted(path.parent for path in FOLDER.rglob("kustomization.yaml")
                  if kustomize.read(path)[0]["kind"] == "Kustomization")
COMPONENTS = sorted(path.parent for path in ROOT.glob("*/**/kustomization.yaml")
                    if kustomize.read(path)[0]["kind"] == "Component" and "build" not in path.parts)
CONTAINERFILES = sorted((FOLDER / "images").glob("*.Containerfile"))
HAS_PLUGIN = (ROOT / "src" / "k8s" / "main.c").exists()


def short(path):
    return str(path.relative_to(ROOT))


def pod_spec(made):
    return made["spec"] if made["kind"] == "Pod" else made.get("spec", {}).get("template", {}).get("spec")


def pods(folder):
    """(name, pod's spec) of everything that makes pods."""
    return [(made["metadata"]["name"], pod_spec(made)) for made in kustomize.render(folder) if pod_spec(made)]


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


def environment(container):
    return {entry["name"]: entry for entry in container.get("env", [])}


@pytest.mark.parametrize("folder", RENDERED, ids=short)
def test_kubernetes_takes_all_objects(folder):
    objects = kustomize.render(folder)
    assert objects
    assert [error for made in objects for error in schema.check(made)] == []


@pytest.mark.parametrize("folder", RENDERED, ids=short)
def test_a_real_kustomize_makes_the_same(folder):
    if not shutil.which("kubectl"):
        pytest.skip("no kubectl here: Debian 12's is too old, and the network is not asked")

    def plain(objects):
        text = json.dumps(objects, sort_keys=True)
        return sorted(json.dumps(made) for made in json.loads(re.sub(r"(nvshare-scheduler)-[0-9a-z]{10}\"", r'\1"', text)))

    run = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60, check=False)
    if "unknown field" in run.stderr or "invalid Kustomization" in run.stderr:
        pytest.skip("this kubectl's kustomize is too old")
    assert run.returncode == 0, run.stderr
    assert plain(kustomize.render(folder)) == plain(list(yaml.safe_load_all(run.stdout)))


def test_every_component_is_used():
    used = set()
    for path in ROOT.glob("kubernetes/**/kustomization.yaml"):
        used |= {(path.parent / name).resolve() for name in kustomize.read(path)[0].get("components", [])}
    assert used == set(COMPONENTS)


def test_every_reference_has_its_object():
    for folder in RENDERED:
        objects = kustomize.render(folder)
        names = {(made["kind"], made["metadata"]["name"]) for made in objects}
        base = {(made["kind"], made["metadata"]["name"]) for made in kustomize.render(FOLDER / "base")}
        for name, spec in pods(folder):
            assert ("PriorityClass", spec["priorityClassName"]) in names | base, name
            account = spec.get("serviceAccountName")
            assert not account or ("ServiceAccount", account) in names, name
            mounted = {mount["name"] for container in containers(spec) for mount in container.get("volumeMounts", [])}
            assert mounted == {volume["name"] for volume in spec.get("volumes", [])}, name
            for volume in spec.get("volumes", []):
                assert "configMap" not in volume or ("ConfigMap", volume["configMap"]["name"]) in names, name
        for made in objects:
            if made["kind"] in ("DaemonSet", "Deployment", "StatefulSet"):
                labels = made["spec"]["template"]["metadata"]["labels"]
                assert made["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("folder", [path for path in RENDERED if "examples" not in path.parts], ids=short)
def test_the_nodes_pods_have_few_rights(folder):
    """README.md lists what is left, and why."""
    writable, added, objects = set(), set(), kustomize.render(folder)
    assert not [made for made in objects if "Role" in made["kind"] or "Binding" in made["kind"]]
    for name, spec in pods(folder):
        assert spec["automountServiceAccountToken"] is False
        assert spec.get("hostPID", False) == (name == "nvshare-scheduler")
        assert not spec.get("hostNetwork") and not spec.get("hostIPC")
        host = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
        for container in containers(spec):
            security = container["securityContext"]
            assert security["privileged"] is security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True and security["seccompProfile"] == {"type": "RuntimeDefault"}
            assert security["capabilities"]["drop"] == ["ALL"]
            added |= {(container["name"], right) for right in security["capabilities"].get("add", [])}
            writable |= {(container["name"], host[mount["name"]]) for mount in container["volumeMounts"]
                         if mount["name"] in host and not mount.get("readOnly")}
            assert container["resources"]["limits"]["memory"]
    config = kustomize.read(folder / "kustomization.yaml")[0].get("components", [])
    assert added == ({("scheduler", "SYS_PTRACE")} if any("handover" in name for name in config) else set())
    features = "/etc/kubernetes/node-feature-discovery/features.d"
    assert writable - {("device-plugin", features)} == {
        ("scheduler", "/run/nvshare"), ("scheduler", "/var/lib/nvshare/scheduler"),
        ("library", "/var/lib/nvshare/lib"), ("device-plugin", "/var/lib/kubelet/device-plugins")}


@pytest.mark.parametrize("folder", [path for path in RENDERED if "examples" in path.parts], ids=short)
def test_pods_of_users_need_no_right(folder):
    for _, spec in pods(folder):
        assert not {"hostPID", "hostNetwork", "hostIPC"} & set(spec) and not spec.get("volumes")
        assert spec["automountServiceAccountToken"] is False
        for container in containers(spec):
            assert container["resources"]["limits"]["nvshare.com/gpu"] == 1
            assert not container["image"].endswith(":latest")
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_annotations_become_settings():
    """Each names a setting of the library, and reaches the containers of the examples."""
    table = (ROOT / "src/hook/base/hook_options_table.c").read_text(encoding="utf-8")
    wanted = {"NVSHARE_PRIORITY": "priority", "NVSHARE_WEIGHT": "weight", "NVSHARE_SLO_MS": "slo-ms",
              "NVSHARE_GPU_MEMORY_LIMIT": "gpu-memory-limit", "NVSHARE_COMPUTE_LIMIT": "compute-limit",
              "NVSHARE_GANG": "gang", "NVSHARE_GANG_SIZE": "gang-size"}
    assert all(f'"{name}"' in table for name in wanted)
    seen = []
    for example in ("notebooks", "serving"):
        for name, spec in pods(FOLDER / "examples" / example):
            seen.append(name)
            found = environment(spec["containers"][0])
            for variable, annotation in wanted.items():
                path = found[variable]["valueFrom"]["fieldRef"]["fieldPath"]
                assert path == f"metadata.annotations['nvshare.com/{annotation}']", name
    assert seen == ["notebook", "server", "training"]
    used = {key for path in (FOLDER / "examples").rglob("*.yaml")
            for key in re.findall(r"^\s+nvshare\.com/([a-z-]+): ", path.read_text(encoding="utf-8"), re.M)}
    assert used - {"annotations", "gpu"} <= set(wanted.values())


def test_the_pod_form_of_the_annotations_is_the_templates():
    folder = FOLDER / "components" / "annotations"
    (pod,), (template,) = kustomize.read(folder / "pod.yaml"), kustomize.read(folder / "template.yaml")
    assert pod["spec"] == template["spec"]["template"]["spec"]


def test_variables_of_the_manifests_are_settings_of_the_programs():
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*table*.c"))
    sources += "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").glob("k8s/*.c"))
    for folder in RENDERED:
        for _, spec in pods(folder):
            for container in containers(spec):
                for name in environment(container):
                    if name.startswith("NVSHARE_PLUGIN_") and not HAS_PLUGIN:
                        continue
                    assert not name.startswith("NVSHARE_") or f'"{name}"' in sources, name


def test_the_settings_file_is_one_that_the_scheduler_takes(tmp_path):
    """Also with every example in it."""
    text = (FOLDER / "base" / "nvshare.yaml").read_text(encoding="utf-8")
    for i, content in enumerate([text, re.sub(r"^#(?=[a-z_]+:|  - )", "", text, flags=re.M)]):
        path = tmp_path / f"{i}.yaml"
        path.write_text(content, encoding="utf-8")
        run = subprocess.run([ROOT / "build/plain/nvshare-scheduler", "--check-config"], capture_output=True, text=True,
                             env={"NVSHARE_CONFIG": str(path)}, timeout=60, check=False)
        assert run.returncode == 0, run.stderr
    assert "namespace:serving=critical" in content and not re.search(r"^#[a-z]", content, re.M)


def test_the_readme_names_folders_that_are_there():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"kubectl apply -k (\S+)", text)
    assert len(named) >= 2
    for name in named:
        assert ROOT / name in RENDERED, name


@pytest.mark.parametrize("change, wanted", [
    (lambda d: d["spec"].update(selectors=1), "unknown field"),
    (lambda d: d["spec"]["template"]["spec"].update(hostPID="yes"), "is no bool"),
    (lambda d: d["spec"]["template"]["spec"]["containers"][0]["env"][0].update(value=1), "is no str"),
    (lambda d: d["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"].update(memory="256M1"), "quantity"),
    (lambda d: d["spec"]["template"]["spec"]["containers"][0].pop("name"), "`name`, must not be `None`"),
    (lambda d: d["spec"].pop("selector"), "`selector`, must not be `None`"),
    (lambda d: d["spec"]["template"]["spec"].update(containers={}), "is no list"),
    (lambda d: d["spec"]["template"]["spec"]["nodeSelector"].update({"nvshare.com/node": True}), "is no str"),
    (lambda d: d.update(kind="DaemonSets"), "has no kind"),
    (lambda d: d.update(apiVersion="apps/v2"), "unknown apiVersion"),
    (lambda d: d["metadata"].pop("name"), "has no name"),
])
def test_the_check_finds_faults(change, wanted):
    (made,) = [m for m in kustomize.render(FOLDER / "base") if m["metadata"]["name"] == "nvshare-scheduler"
               and m["kind"] == "DaemonSet"]
    made = copy.deepcopy(made)
    assert schema.check(made) == []
    change(made)
    errors = schema.check(made)
    assert len(errors) == 1 and wanted in errors[0], errors


@pytest.mark.parametrize("text, wanted", [
    ("resources: [missing.yaml]", "there is no such file"),
    ("resource: [a.yaml]", "not known here"),
    ("patches: [{path: patch.yaml}]\nresources: [a.yaml]", "a patch finds nothing"),
    ("resources: [a.yaml, a.yaml]", "an object stands twice"),
    ("components: [a]", "name different kinds of folders"),
    ("resources: [a.yaml]\nresources: [a.yaml]", "a key stands twice"),
])
def test_a_wrong_kustomization_is_told(tmp_path, text, wanted):
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n")
    (tmp_path / "patch.yaml").write_text("kind: Service\nmetadata: {name: b}\nspec: {}\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "kustomization.yaml").write_text("kind: Kustomization\n")
    (tmp_path / "kustomization.yaml").write_text(f"kind: Kustomization\n{text}\n")
    with pytest.raises(kustomize.Bad, match=wanted):
        kustomize.render(tmp_path)


def context(path):
    """The folder that the file's own command names, below build/images."""
    (named,) = re.findall(r"^#   podman build .* -f (\S+) (\S+)$", path.read_text(encoding="utf-8"), re.M)
    assert ROOT / named[0] == path
    return ROOT / named[1]


@pytest.mark.parametrize("path", CONTAINERFILES, ids=short)
def test_a_containerfile_has_its_inputs(path):
    """make images has made them; it fetches nothing, and so does the file."""
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    assert [line[0] for line in lines] == ["FROM", "COPY", "ENTRYPOINT"] and lines[0][1] == "scratch"
    for source in lines[1][1:-1]:
        assert (context(path) / source).exists(), source
    entry = json.loads(" ".join(lines[2][1:]))[0]
    assert path.name != "device-plugin.Containerfile" or HAS_PLUGIN == (context(path) / entry[1:]).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the root folder")
@pytest.mark.parametrize("name, program", [("scheduler", "nvshare-scheduler"), ("scheduler", "nvsharectl"),
                                           ("device-plugin", "nvshare-device-plugin")])
def test_an_image_has_all_that_its_programs_need(name, program):
    if program == "nvshare-device-plugin" and not HAS_PLUGIN:
        pytest.skip("the device plugin is not built")
    run = subprocess.run(["chroot", IMAGES / name, f"/usr/bin/{program}", "--version"], capture_output=True, text=True,
                         timeout=60, check=False)
    assert run.returncode == 0 and run.stdout.startswith(program), run.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the root folder")
def test_the_library_is_put_on_the_node(tmp_path):
    image = tmp_path / "image"
    shutil.copytree(IMAGES / "device-plugin", image, symlinks=True)
    folder = image / "var/lib/nvshare/lib"
    folder.mkdir(parents=True)

    def install():
        subprocess.run(["chroot", image, "/usr/bin/nvshare-install-library", "/var/lib/nvshare/lib"], check=True,
                       timeout=60, stdout=subprocess.DEVNULL)
        return sorted(entry.name for entry in folder.iterdir()), (folder / "libnvshare.so").readlink().name

    (library,) = (image / "usr/lib/nvshare").iterdir()
    assert install() == (["libnvshare.so", library.name], library.name)
    assert (folder / library.name).read_bytes() == library.read_bytes()
    # A newer one joins it, and the older file stays for those that run.
    held = open(folder / library.name, "rb")  # noqa: SIM115
    library.rename(library.with_name("libnvshare.so.99"))
    assert install() == (["libnvshare.so", library.name, "libnvshare.so.99"], "libnvshare.so.99")
    assert len(held.read()) > 0
    held.close()
