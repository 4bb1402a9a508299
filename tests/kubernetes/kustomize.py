# SPDX-License-Identifier: Apache-2.0
"""What `kubectl kustomize FOLDER` prints, as objects, for the features that kubernetes/ uses; others are an error.

Debian 12 has no kustomize that knows components. test_manifests.py compares with a real one where there is one. Names
of generated ConfigMaps get another suffix than kustomize's.
"""

import copy
import hashlib
import json

import yaml

NOT_NAMESPACED = ("Namespace", "PriorityClass")
KEYS = {"apiVersion", "kind", "namespace", "resources", "components", "configMapGenerator", "images", "patches"}
# The key by which an entry of a list is found again, by the list's name.
MERGE_KEYS = {"containers": "name", "initContainers": "name", "env": "name", "volumes": "name",
              "volumeMounts": "mountPath", "ports": "containerPort"}


class Bad(Exception):
    """The text names the file, and what is wrong."""


def expect(condition, where, text):
    if not condition:
        raise Bad(f"{where}: {text}")


class UniqueLoader(yaml.CSafeLoader):
    """A key that stands twice is an error; YAML's own loader takes the last one."""


def no_key_twice(loader, node, deep=False):
    keys = [loader.construct_object(key, deep) for key, _ in node.value]
    expect(len(keys) == len(set(keys)), node.start_mark, f"a key stands twice: {keys}")
    return yaml.CSafeLoader.construct_mapping(loader, node, deep)


UniqueLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, no_key_twice)


def load(text):
    return [document for document in yaml.load_all(text, UniqueLoader) if document]


def read(path):
    expect(path.is_file(), path, "there is no such file")
    return load(path.read_text(encoding="utf-8"))


def merge(base, patch, name=""):
    """A strategic merge; the patch wins."""
    if isinstance(base, dict) and isinstance(patch, dict):
        merged = dict(base)
        for key, value in patch.items():
            merged[key] = merge(base[key], value, key) if key in base else copy.deepcopy(value)
        return merged
    if isinstance(base, list) and isinstance(patch, list) and name in MERGE_KEYS:
        key, merged = MERGE_KEYS[name], list(base)
        new = [entry for entry in patch if entry[key] not in [old[key] for old in base]]
        for entry in patch:
            merged = [merge(old, entry) if old[key] == entry[key] else old for old in merged]
        return copy.deepcopy(new) + merged  # kustomize puts new entries first
    return copy.deepcopy(patch)


def change(target, operation, where):
    """One operation of RFC 6902."""
    expect(set(operation) == {"op", "path", "value"} and operation["op"] in ("add", "replace"), where,
           f"this operation is not known here: {operation}")
    *above, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
    for part in above:
        target = target[int(part)] if isinstance(target, list) else target.get(part)
        expect(target is not None, where, f"nothing is at {operation['path']}")
    if isinstance(target, list):
        target.insert(len(target) if last == "-" else int(last), operation["value"])
    else:
        expect(operation["op"] == "add" or last in target, where, f"nothing is at {operation['path']}")
        target[last] = operation["value"]


def is_selected(target, selector):
    metadata = target["metadata"]
    labels = dict(part.split("=") for part in selector.get("labelSelector", "").split(",") if part)
    return (selector.get("kind", target["kind"]) == target["kind"]
            and selector.get("name", metadata["name"]) == metadata["name"]
            and all(metadata.get("labels", {}).get(key) == value for key, value in labels.items()))


def apply_patch(objects, entry, folder):
    where = folder / "kustomization.yaml"
    expect(set(entry) <= {"path", "patch", "target"} and ("path" in entry) != ("patch" in entry), where,
           f"a patch has a path or a text: {sorted(entry)}")
    text = entry.get("patch") or (folder / entry["path"]).read_text(encoding="utf-8")
    (patch,) = load(text)
    selector = entry.get("target") or {"kind": patch["kind"], "name": patch["metadata"]["name"]}
    expect(set(selector) <= {"kind", "name", "labelSelector"}, where, f"this target is not known here: {selector}")
    found = [i for i, target in enumerate(objects) if is_selected(target, selector)]
    expect(found or "labelSelector" in selector, where, f"a patch finds nothing: {selector}")
    for i in found:
        if isinstance(patch, list):
            for operation in patch:
                change(objects[i], operation, where)
        else:
            body = {key: value for key, value in patch.items() if key not in ("apiVersion", "kind")}
            body["metadata"] = {key: value for key, value in body.get("metadata", {}).items() if key != "name"}
            objects[i] = merge(objects[i], body)


def generate(entry, folder):
    where = folder / "kustomization.yaml"
    expect(set(entry) <= {"name", "files", "options"}, where, f"this generator is not known here: {sorted(entry)}")
    options = entry.get("options", {})
    expect(set(options) <= {"labels", "disableNameSuffixHash"}, where, f"these options are not known here: {options}")
    data = {}
    for name in entry["files"]:
        expect((folder / name).is_file(), where, f"there is no file {name}")
        data[name] = (folder / name).read_text(encoding="utf-8")
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": entry["name"]}, "data": data}
    if "labels" in options:
        made["metadata"]["labels"] = options["labels"]
    if options.get("disableNameSuffixHash"):
        return made, None
    suffix = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:10]
    made["metadata"]["name"] += "-" + suffix
    return made, (entry["name"], made["metadata"]["name"])


def walk(node, visit):
    """visit(key, owner) for each key of each dict."""
    if isinstance(node, dict):
        for key in list(node):
            visit(key, node)
            walk(node[key], visit)
    elif isinstance(node, list):
        for entry in node:
            walk(entry, visit)


def rename_config(objects, old, new):
    def visit(key, owner):
        if key == "configMap" and owner[key].get("name") == old:
            owner[key]["name"] = new
    walk(objects, visit)


def rename_image(objects, entry):
    def visit(key, owner):
        if key == "image" and owner[key].split(":")[0] == entry["name"]:
            owner[key] = f"{entry['newName']}:{entry['newTag']}"
    walk(objects, visit)


def set_namespace(objects, namespace):
    for made in objects:
        if made["kind"] == "Namespace":
            made["metadata"]["name"] = namespace
        elif made["kind"] not in NOT_NAMESPACED:
            made["metadata"]["namespace"] = namespace


def render(folder, objects=None):
    """The objects of a kustomization. objects: those that a component changes."""
    folder = folder.resolve()
    where = folder / "kustomization.yaml"
    (config,) = read(where)
    expect(set(config) <= KEYS, where, f"not known here: {sorted(set(config) - KEYS)}")
    is_component = config["kind"] == "Component"
    expect(is_component == (objects is not None), where, "components: and resources: name different kinds of folders")
    objects = objects or []
    for name in config.get("resources", []):
        path = folder / name
        objects += render(path) if path.is_dir() else read(path)
    renamed = []
    for entry in config.get("configMapGenerator", []):
        made, names = generate(entry, folder)
        objects.append(made)
        renamed += [names] if names else []
    for name in config.get("components", []):
        objects = render(folder / name, objects)
    for entry in config.get("patches", []):
        apply_patch(objects, entry, folder)
    for entry in config.get("images", []):
        rename_image(objects, entry)
    for old, new in renamed:
        rename_config(objects, old, new)
    if "namespace" in config:
        set_namespace(objects, config["namespace"])
    names = [(made["kind"], made["metadata"].get("namespace"), made["metadata"]["name"]) for made in objects]
    expect(len(set(names)) == len(names), where, "an object stands twice")
    return objects
