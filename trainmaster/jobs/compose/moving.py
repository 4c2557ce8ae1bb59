"""Adapts a TrainJob of one server to another one: its fields, and code that is only in the home of this machine. Pure.

    fields       what the other server has no field for becomes an annotation, or the newer form of overrides
    code         a volume of this machine's driver becomes an emptyDir, which the command fills (`carried`)

What cannot be adapted is a `MoveError`, one sentence.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainmaster.api import code as code_words
from trainmaster.api.labels import CODE_MAP
from trainmaster.api.lifecycle.term_names import DEADLINE_ANNOTATION, DEADLINE_FIELD, TTL_ANNOTATION, TTL_FIELD
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_annotations, read_fields
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.training import torchtune
from trainmaster.api.training.steps import (
    NODE,
    find_container,
    find_trainer,
    get_template_spec,
    list_jobs,
    read_framework,
)
from trainmaster.api.training.template import fill_template
from trainmaster.jobs.compose import carried
from trainmaster.jobs.compose.trainjob import OVERRIDES, PATCHES, SupportedFields, build_derived, to_patches

_TERMS = {TTL_FIELD: TTL_ANNOTATION, DEADLINE_FIELD: DEADLINE_ANNOTATION}
_GROUPS = ("initContainers", "containers", "ephemeralContainers")


class MoveError(Exception):
    """Why the job cannot run there."""


@dataclass(frozen=True, slots=True)
class MovedJob:
    trainjob: Object
    runtime: Object | None
    """What has to be created with it; None if it uses one that exists there."""
    changes: tuple[str, ...] = ()
    """What is written differently, one sentence each."""


def adapt_fields(trainjob: Object, shape: SupportedFields) -> tuple[Object, list[str], list[str]]:
    """(the job for a server with these fields, what changed, fields that it does not have)."""
    spec, notes = dict(trainjob["spec"]), {**read_annotations(trainjob)}
    changes = []
    for name, annotation in _TERMS.items():
        if name in spec and name not in shape.fields:
            notes[annotation] = str(spec.pop(name))
            changes.append(
                f"spec.{name} is no field there: the annotation {annotation} says it to `operator --companion`"
            )
    adapted = {
        **trainjob,
        "spec": spec,
        "metadata": {**trainjob["metadata"], **({"annotations": notes} if notes else {})},
    }
    if OVERRIDES in spec and OVERRIDES not in shape.fields and PATCHES in shape.fields:
        adapted = to_patches(adapted, shape.manager)
        changes.append(f"spec.{OVERRIDES} is written as spec.{PATCHES}")
    return adapted, changes, sorted(name for name in adapted["spec"] if name not in shape.fields)


# Code


def find_code(*objects: Fields) -> str:
    """The digest of the code that the objects mount; "" if they mount none."""
    digests = {digest for obj in objects for _, volume in _list_code(obj) if (digest := code_words.find_digest(volume))}
    if len(digests) > 1:
        raise MoveError("it mounts several code volumes, and only one can be sent: build an image with the code")
    return next(iter(digests), "")


def move_code(trainjob: Object, runtime: Object, config_map: str) -> MovedJob:
    """`config_map`: the name of the one with its packed code, created before the job."""
    trainjob, spec = copy.deepcopy(trainjob), copy.deepcopy(runtime["spec"])
    names = {volume["name"] for obj in (trainjob, spec) for _, volume in _list_code(obj)}
    path = _find_path(names, trainjob, spec)
    for obj in (trainjob, spec):
        for pod, volume in list(_list_code(obj)):
            at = pod["volumes"].index(volume)
            pod["volumes"][at : at + 1] = [
                {"name": volume["name"], "emptyDir": {}},
                carried.build_packed_volume(config_map),
            ]
        for container, mounts in _list_mounts(obj, names):
            container["volumeMounts"] = [
                *({key: value for key, value in mount.items() if key != "readOnly"} for mount in mounts),
                *(mount for mount in container["volumeMounts"] if mount not in mounts),
                carried.build_packed_mount(),
            ]
    mounting = _list_mounting(trainjob, {**runtime, "spec": spec})
    if (find_trainer(get_template_spec(runtime)) or {}).get("name") in mounting:
        _wrap_trainer(trainjob, runtime, path)
    carried.wrap_helpers(spec["template"]["spec"], path, mounting)
    trainjob["metadata"]["annotations"] = {**read_annotations(trainjob), CODE_MAP: config_map}
    changes = (f"its code is sent as the ConfigMap {config_map}, and unpacked into {path} before the program starts",)
    if spec == runtime["spec"]:
        return MovedJob(trainjob, None, changes)
    derived = build_derived(runtime, spec, trainjob["metadata"]["namespace"])
    reference = {"apiGroup": TRAIN_JOBS.group, "kind": derived["kind"], "name": derived["metadata"]["name"]}
    trainjob["spec"]["runtimeRef"] = reference
    return MovedJob(
        trainjob, derived, (*changes, f"the runtime {reference['name']} is made for it, to unpack the code")
    )


def _wrap_trainer(trainjob: Object, runtime: Object, path: str) -> None:
    given = read_fields(trainjob, "spec", "trainer")
    own = find_container(find_trainer(get_template_spec(runtime)) or {}, NODE) or {}
    command = list_items(given, "command") or list_items(own, "command")
    if not command:
        raise MoveError("it runs the entrypoint of its image, which cannot unpack code: set spec.trainer.command")
    if torchtune.is_torchtune({"command": command}) or read_framework(runtime)[0] == "flux":
        raise MoveError(
            "its command is completed by the controller and cannot unpack code: build an image with the code"
        )
    words = [*command, *(list_items(given, "args") or list_items(own, "args"))]
    first, *rest = carried.wrap(words, path, enters=not own.get("workingDir"))
    trainjob["spec"]["trainer"] = {**given, "command": [first], "args": rest}


def _find_path(names: set[str], *objects: Fields) -> str:
    """Where the containers expect the code."""
    mounts = [mount for obj in objects for _, found in _list_mounts(obj, names) for mount in found]
    paths = {mount["mountPath"] for mount in mounts}
    early = any(container.get("name") != NODE for obj in objects for container, _ in _list_mounts(obj, names))
    if len(paths) != 1 or any("subPath" in mount or "subPathExpr" in mount for mount in mounts) or early:
        raise MoveError(
            f"its code can be sent only if it is mounted whole, at one path, by containers named {NODE}: build an "
            "image with the code"
        )
    return str(paths.pop())


def _list_mounting(trainjob: Fields, runtime: Fields) -> set[str]:
    """The jobs of the runtime whose program gets the code."""
    found = set()
    for job in list_jobs(fill_template(trainjob, runtime)):
        container = find_container(job, NODE) or {}
        if any(mount.get("name") == carried.PACKED_VOLUME for mount in list_items(container, "volumeMounts")):
            found.add(str(job["name"]))
    return found


def _list_code(obj: Any) -> Iterator[tuple[Object, Object]]:
    """(Pod spec, volume with code) anywhere in the object."""
    for pod in _walk(obj):
        for volume in list_items(pod, "volumes"):
            if isinstance(volume, dict) and code_words.find_digest(volume) is not None:
                yield pod, volume


def _list_mounts(obj: Any, names: set[str]) -> Iterator[tuple[Object, list[Object]]]:
    """(container, its mounts of these volumes)."""
    for pod in _walk(obj):
        for group in _GROUPS:
            for container in list_items(pod, group):
                mounts = [one for one in list_items(container, "volumeMounts") if one.get("name") in names]
                if mounts:
                    yield container, mounts


def _walk(obj: Any) -> Iterator[Object]:
    if isinstance(obj, dict):
        yield obj
        for value in obj.values():
            yield from _walk(value)
    elif isinstance(obj, list):
        for value in obj:
            yield from _walk(value)
