"""Renders the Kubernetes pod of a step, and reads from a pod's status why it ended. Pure.

Order of strength: our defaults, the site's template over them, and over both what this step needs and who it may be. Trainings
are rendered from this pod by ``operators.jobs.render``.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from artifacts.refs import Digest, short
from artifacts.secret import has_password

CONTAINER = "base"  # the name that KubernetesPodOperator looks for
SECRET = "perennial-steps"  # noqa: S105  the name of a Kubernetes Secret, not its content
CACHE_VOLUME, CACHE_FOLDER = "perennial-cache", "/perennial-cache"
LABEL_LENGTH = 63
NAME_LENGTH = 63
DEADLINE_SECONDS = 86_400  # decisions.md 4.9: a job's deadline is 24 h at most
NOBODY = 65_532
SCRATCH_VOLUME = "perennial-scratch"
POD_SECURITY: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": NOBODY,
    "fsGroup": NOBODY,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
DEFAULT_RESOURCES: Mapping[str, Any] = {
    "requests": {"cpu": "1", "memory": "2Gi"},
    "limits": {"memory": "4Gi"},
}
DISRUPTIONS = frozenset({"Evicted", "Preempting", "Preempted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated"})
STEP_SETTINGS = ("PERENNIAL_STORE", "PERENNIAL_STORES", "PERENNIAL_MLFLOW", "PERENNIAL_ONLINE")
WHOLE_LISTS = frozenset({"command", "args"})
NAMED_LISTS = frozenset({"containers", "initContainers", "env", "volumes", "volumeMounts", "imagePullSecrets", "ports"})


def pod_name(module: str, key: Digest, attempt: int) -> str:
    """The name of an attempt's pod: the same for every try at that attempt, so "already exists" means "mine"."""
    tail = f"-{short(key)}-a{attempt}"
    head = re.sub(r"[^a-z0-9]+", "-", module.lower()).strip("-")
    return (head[: NAME_LENGTH - len(tail)].rstrip("-") + tail).lstrip("-")


def label(text: str) -> str:
    """A valid label value: the text itself where possible, else its beginning and a hash of the whole."""
    if len(text) <= LABEL_LENGTH and re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", text):
        return text
    tail = hashlib.sha256(text.encode()).hexdigest()[:12]
    head = re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[: LABEL_LENGTH - len(tail) - 1].strip("-_.")
    return f"{head}-{tail}".lstrip("-")


def labels(image: str, key: Digest, words: Mapping[str, str]) -> dict[str, str]:
    """The labels by which a pod is found again: dag, task, a hash of the run, map index, key (decisions.md 4.8)."""
    run = hashlib.sha256(words.get("run", "").encode()).hexdigest()[:12]
    return {
        "app.kubernetes.io/name": "perennial",
        "app.kubernetes.io/component": image,
        "perennial/dag": label(words.get("dag", "")),
        "perennial/task": label(words.get("task", "")),
        "perennial/run": run,
        "perennial/map-index": label(words.get("map_index", "-1").replace("-1", "none")),
        "perennial/key": short(key),
    }


def marks(key: Digest, attempt: int, words: Mapping[str, str]) -> dict[str, str]:
    """The annotations that say in full whose pod it is; labels hold only hashes of what is long."""
    names = ("dag", "task", "run", "map_index")
    return {
        "perennial/key": key,
        "perennial/attempt": str(attempt),
        **{f"perennial/{name.replace('_', '-')}": words.get(name, "") for name in names},
    }


def step_environment(settings: Mapping[str, str]) -> list[dict[str, Any]]:
    """The settings that a step reads, as a container's ``env``; a value with a password becomes a reference to the Secret.

    The secrets that declared stores refer to by ``env`` come from the same Secret, under the same names.
    """
    entries: list[dict[str, Any]] = []
    for name in STEP_SETTINGS:
        value = settings.get(name, "")
        if has_password(value):
            entries.append({"name": name, "valueFrom": {"secretKeyRef": {"name": SECRET, "key": name}}})
        elif value:
            entries.append({"name": name, "value": value})
    return entries


def pod(
    *,
    name: str,
    image: str,
    command: Sequence[str],
    env: Sequence[Mapping[str, Any]],
    namespace: str,
    labels: Mapping[str, str],
    resources: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    template: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The pod of one step; raises ValueError for an image without a digest, which could not be run again."""
    if not re.search(r"@sha256:[0-9a-f]{64}$", image):
        raise ValueError(f"image '{image}' has no digest; write it as name@sha256:<64 hex digits>")
    ours: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels),
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "restartPolicy": "Never",  # Airflow retries; a restarted container would hide why the first one died
            "containers": [
                {
                    "name": CONTAINER,
                    "image": image,
                    "command": list(command),
                    "env": [dict(entry) for entry in env],
                    **({"resources": dict(resources)} if resources else {}),
                }
            ],
        },
    }
    return _confined(merged(merged(_defaults(), template or {}), ours))


def _confined(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with our security contexts in the place of whatever a site wrote for the step's container."""
    spec = manifest["spec"]
    spec["securityContext"] = {**spec.get("securityContext", {}), **copy.deepcopy(dict(POD_SECURITY))}
    for container in spec["containers"]:
        if container["name"] == CONTAINER:
            container.pop("args", None)  # they would follow our command
            container["securityContext"] = copy.deepcopy(dict(CONTAINER_SECURITY))
    return manifest


def _defaults() -> dict[str, Any]:
    return {
        "spec": {
            "automountServiceAccountToken": False,  # a step talks to the store, never to the cluster
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "containers": [
                {
                    "name": CONTAINER,
                    "env": [{"name": "PERENNIAL_CACHE", "value": CACHE_FOLDER}],
                    "volumeMounts": [
                        {"name": CACHE_VOLUME, "mountPath": CACHE_FOLDER},
                        {"name": SCRATCH_VOLUME, "mountPath": "/tmp"},  # noqa: S108  the root filesystem is read-only
                    ],
                    "envFrom": [{"secretRef": {"name": SECRET, "optional": True}}],
                    "resources": copy.deepcopy(dict(DEFAULT_RESOURCES)),
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                }
            ],
            "volumes": [
                {"name": CACHE_VOLUME, "emptyDir": {}},  # a site puts one that outlives the pod in its place
                {"name": SCRATCH_VOLUME, "emptyDir": {}},
            ],
        }
    }


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two manifests as one: mappings merge, named lists merge by name, commands are replaced, other lists are joined, ``over`` wins."""
    result = dict(under)
    for field, value in over.items():
        before = result.get(field)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            result[field] = merged(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            named = {"volumes": _whole_by_name}.get(field, _by_name)
            joined = value if field in WHOLE_LISTS else [*before, *value]
            result[field] = named(before, value) if field in NAMED_LISTS else joined
        else:
            result[field] = value
    return result


def _by_name(under: Sequence[Mapping[str, Any]], over: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    result = {entry["name"]: dict(entry) for entry in under}
    for entry in over:
        # An env entry is replaced whole: "value" and "valueFrom" exclude each other.
        whole = {"value", "valueFrom"} & entry.keys()
        result[entry["name"]] = dict(entry) if whole else merged(result.get(entry["name"], {}), entry)
    return list(result.values())


def _whole_by_name(under: Sequence[Mapping[str, Any]], over: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Volumes are replaced whole: what kind a volume is of is a field of its own, and kinds exclude each other."""
    return list({entry["name"]: dict(entry) for entry in (*under, *over)}.values())


def ended(pod_object: Mapping[str, Any]) -> bool:
    """Whether the step's container has ended."""
    found = (pod_object.get("status") or {}).get("containerStatuses") or []
    return any(one["name"] == CONTAINER and "terminated" in (one.get("state") or {}) for one in found)


def death(pod_object: Mapping[str, Any]) -> tuple[int, str]:
    """Exit code (negative for a signal, 1 when unknown) and reason of a pod's end: container first, then pod, then node."""
    status = pod_object.get("status") or {}
    ends = {
        one["name"]: (one.get("state") or {}).get("terminated") or {} for one in status.get("containerStatuses") or []
    }
    end = ends.get(CONTAINER, {})
    code = int(end.get("exitCode", 1))
    reasons = [end.get("reason"), status.get("reason"), end.get("message") or status.get("message")]
    node = (pod_object.get("spec") or {}).get("nodeName")
    text = ": ".join(str(reason) for reason in reasons if reason and reason != "Error") or "no reason given"
    where = f" on {node}" if node else ""
    hint = f"; its memory limit was {_memory_limit(pod_object)}, raise it" if end.get("reason") == "OOMKilled" else ""
    return (128 - code if code > 128 else code), f"{text} (exit {code}{where}){hint}"  # noqa: PLR2004  128 + n = signal n


def _memory_limit(pod_object: Mapping[str, Any]) -> str:
    containers = (pod_object.get("spec") or {}).get("containers") or []
    limits = [(one.get("resources") or {}).get("limits") or {} for one in containers if one["name"] == CONTAINER]
    return str(limits[0].get("memory", "not set")) if limits else "not set"


def disrupted(pod_object: Mapping[str, Any]) -> bool:
    """Whether the cluster took the pod away, by eviction, preemption or the loss of its node: no fault of the step."""
    status = pod_object.get("status") or {}
    told = any(one["type"] == "DisruptionTarget" and one["status"] == "True" for one in status.get("conditions") or [])
    return told or status.get("reason") in DISRUPTIONS
