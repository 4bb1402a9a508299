# SPDX-License-Identifier: Apache-2.0
"""Whether an object is one that Kubernetes takes: by the models of Debian's python3-kubernetes, made from its API.

check() finds unknown fields and kinds, wrong types, and missing fields.
"""

import re

from kubernetes import client

QUANTITY = re.compile(r"^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i)?$")
QUANTITIES = {"limits", "requests", "hard", "capacity", "sizeLimit"}
APIS = {
    "v1": client.CoreV1Api,
    "apps/v1": client.AppsV1Api,
    "batch/v1": client.BatchV1Api,
    "networking.k8s.io/v1": client.NetworkingV1Api,
    "scheduling.k8s.io/v1": client.SchedulingV1Api,
}
PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float)}

# Of the Prometheus operator's API reference, the fields that a PodMonitor may have here: a type, or those below it.
POD_MONITOR = {
    "apiVersion": str, "kind": str,
    "metadata": {"name": str, "namespace": str, "labels": dict},
    "spec": {
        "jobLabel": str,
        "selector": {"matchLabels": dict},
        "podMetricsEndpoints": [{
            "port": str, "path": str, "interval": str, "honorLabels": bool,
            "relabelings": [{"sourceLabels": [str], "targetLabel": str}],
        }],
    },
}


def snake(kind):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()


def is_namespaced(made):
    api = APIS[made["apiVersion"]]
    return hasattr(api, f"create_namespaced_{snake(made['kind'])}")


def check_custom(value, wanted, path):
    if isinstance(wanted, dict):
        if not isinstance(value, dict):
            return [f"{path}: is no mapping"]
        errors = [f"{path}.{key}: unknown field" for key in value if key not in wanted]
        return errors + [e for key in value if key in wanted
                         for e in check_custom(value[key], wanted[key], f"{path}.{key}")]
    if isinstance(wanted, list):
        if not isinstance(value, list):
            return [f"{path}: is no list"]
        return [e for i, entry in enumerate(value) for e in check_custom(entry, wanted[0], f"{path}[{i}]")]
    return [] if isinstance(value, wanted) else [f"{path}: is no {wanted.__name__}"]


def check_plain(value, wanted, path):
    kind = PLAIN[wanted]
    is_good = isinstance(value, kind) and (wanted == "bool" or not isinstance(value, bool))
    return [] if is_good else [f"{path}: is no {wanted}: {value!r}"]


def check_map(value, wanted, path, name):
    if not isinstance(value, dict):
        return [f"{path}: is no mapping"]
    errors = [f"{path}: the key {key!r} is no text" for key in value if not isinstance(key, str)]
    for key, entry in value.items():
        if name in QUANTITIES:
            is_good = not isinstance(entry, bool) and QUANTITY.match(str(entry))
            errors += [] if is_good else [f"{path}.{key}: is no quantity: {entry!r}"]
        else:
            errors += check_value(entry, wanted, f"{path}.{key}", key)
    return errors


def check_value(value, wanted, path, name):
    if wanted == "object":
        return []
    if wanted == "datetime":
        return check_plain(value, "str", path)
    if wanted in PLAIN:
        return check_plain(value, wanted, path)
    if wanted.startswith("list["):
        if not isinstance(value, list):
            return [f"{path}: is no list"]
        return [e for i, entry in enumerate(value)
                for e in check_value(entry, wanted[5:-1], f"{path}[{i}]", name)]
    if wanted.startswith("dict("):
        return check_map(value, wanted[5:-1].split(", ")[1], path, name)
    return check_model(value, getattr(client, wanted), path)


def check_model(value, model, path):
    if not isinstance(value, dict):
        return [f"{path}: is no mapping"]
    attributes = {key: attribute for attribute, key in model.attribute_map.items()}
    errors = [f"{path}.{key}: unknown field" for key in value if key not in attributes]
    known = {attributes[key]: entry for key, entry in value.items() if key in attributes}
    for attribute, entry in known.items():
        key = model.attribute_map[attribute]
        errors += check_value(entry, model.openapi_types[attribute], f"{path}.{key}", key)
    try:
        model(**known)  # its setters look for missing fields, and for words of a fixed set
    except ValueError as error:
        errors.append(f"{path}: {error}")
    return errors


def check(made):
    """The errors of one object; none: it is good."""
    for key in ("apiVersion", "kind", "metadata"):
        if key not in made:
            return [f"an object lacks {key}"]
    path = f"{made['kind']} {made['metadata'].get('name')}"
    if (made["apiVersion"], made["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor"):
        return check_custom(made, POD_MONITOR, path)
    api = APIS.get(made["apiVersion"])
    if not api:
        return [f"{path}: unknown apiVersion {made['apiVersion']}"]
    if not is_namespaced(made) and not hasattr(api, f"create_{snake(made['kind'])}"):
        return [f"{path}: {made['apiVersion']} has no kind {made['kind']}"]
    if not made["metadata"].get("name"):
        return [f"{path}: it has no name"]
    return check_model(made, getattr(client, f"V1{made['kind']}"), path)
