"""Installs the shipped runtimes (`trainmaster/manifests/`) at startup, without overwriting edited ones.

The runtimes of the REST API are in the directories with its other templates, `manifests/FRAMEWORK/runtime.yaml`; a file
of the same name in `templates/` of the home directory takes precedence.

Each installed runtime has an annotation with the hash of the spec that the server stored. As long as the hash matches,
nobody has edited the runtime and a newer release may replace it; otherwise it is left alone, and so is a runtime that
somebody manages with server-side apply. A deleted runtime is installed again at the next start.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import orjson

from trainmaster.api.labels import SHIPPED_HASH
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_annotations, read_fields, read_labels
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES
from trainmaster.api.status import AlreadyExists, Conflict, NotFound
from trainmaster.client.contract import Client, PatchType, WriteOptions
from trainmaster.version import PACKAGE

log = logging.getLogger(__name__)

_MANAGER = WriteOptions(field_manager="trainmaster-installer")
_SHIPPED = Path(PACKAGE, "manifests")
_RUNTIME = "runtime.yaml"
_NAME = re.compile(r"^metadata:\n(?:  .*\n)*?  name: [\"']?([a-z0-9.-]+)", re.MULTILINE)
SOURCE_HASH = "trainmaster.dev/shipped-source"
"""Annotation: the hash of the file that the runtime was created from. If it is equal, there is nothing to do."""


def list_manifests(templates: Path | None = None) -> Iterator[tuple[str, str]]:
    """The name and text of each shipped runtime. `templates` is the administrator's directory."""
    for entry in sorted(_SHIPPED.iterdir(), key=lambda path: path.name):
        if entry.name.endswith(".yaml"):
            yield entry.name.removesuffix(".yaml"), entry.read_text()
        elif (shipped := entry.joinpath(_RUNTIME)).is_file():
            own = None if templates is None else templates / entry.name / _RUNTIME
            text = own.read_text() if own is not None and own.is_file() else shipped.read_text()
            # Find the name without parsing the file, to keep startup fast.
            if match := _NAME.search(text):
                yield match[1], text
            else:
                log.error("a runtime has no name", extra={"action": "runtimes.nameless", "file": str(own or shipped)})


def parse_manifest(text: str) -> Object:
    import yaml  # noqa: PLC0415  # costs 20 ms, and only the first start of a release parses anything

    # The C loader, if available, takes 5 ms for all files instead of 37 ms, which matters at the first start.
    manifest: Object = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return manifest


def compute_hash(value: Object) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


async def install_runtimes(client: Client, templates: Path | None = None) -> None:
    for name, text in list_manifests(templates):
        try:
            await _install(client, name, text)
        except (Conflict, AlreadyExists):
            # Somebody is editing or creating the runtime right now, so leave it alone.
            log.info("shipped runtime left alone", extra={"action": "runtimes.kept", "runtime": name})


async def _install(client: Client, name: str, text: str) -> None:
    source = hashlib.sha256(text.encode()).hexdigest()[:32]
    try:
        old = await client.get(CLUSTER_TRAINING_RUNTIMES, name)
    except NotFound:
        manifest = _annotate(parse_manifest(text), source)
        await _seal(client, await client.create(CLUSTER_TRAINING_RUNTIMES, manifest, options=_MANAGER))
        log.info("shipped runtime installed", extra={"action": "runtimes.installed", "runtime": name})
        return
    annotations = read_annotations(old)
    is_current = annotations.get(SOURCE_HASH) == source and SHIPPED_HASH in annotations
    if is_current or not _may_replace(old):
        await _release(client, old)
        if not is_current:
            log.info("runtime of others kept", extra={"action": "runtimes.kept", "runtime": name})
        return
    manifest = _annotate(parse_manifest(text), source)
    await _seal(client, await client.update(CLUSTER_TRAINING_RUNTIMES, _replace(old, manifest), options=_MANAGER))
    log.info("shipped runtime updated", extra={"action": "runtimes.updated", "runtime": name})


def _may_replace(runtime: Object) -> bool:
    """Whether we installed the runtime, nobody has edited it, and nobody applies it."""
    annotations = read_annotations(runtime)
    if SOURCE_HASH not in annotations:
        return False
    if annotations.get(SHIPPED_HASH, "") not in ("", compute_hash(runtime["spec"])):
        return False
    entries = runtime["metadata"].get("managedFields") or ()
    return not any(entry.get("operation") == "Apply" and read_fields(entry, "fieldsV1", "f:spec") for entry in entries)


def _annotate(manifest: Object, source: str) -> Object:
    annotations = {**read_annotations(manifest), SOURCE_HASH: source}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}


def _replace(old: Object, manifest: Object) -> Object:
    """The stored runtime with the spec of the manifest; labels, annotations and finalizers of others are kept."""
    annotations = {**read_annotations(old), **read_annotations(manifest)}
    # Until the new spec is sealed, the next start must not take it for an edited one.
    annotations.pop(SHIPPED_HASH, None)
    labels = {**read_labels(old), **read_labels(manifest)}
    metadata = {**old["metadata"], "labels": labels, "annotations": annotations}
    return {**old, "metadata": metadata, "spec": manifest["spec"]}


async def _seal(client: Client, stored: Object) -> None:
    """Hashes what the server stored, including defaults, so that later comparisons are valid."""
    await _patch_metadata(client, stored, {"annotations": {SHIPPED_HASH: compute_hash(stored["spec"])}})


async def _release(client: Client, runtime: Object) -> None:
    """For runtimes that an earlier release installed."""
    entries = runtime["metadata"].get("managedFields") or []
    if release_fields(entries) != entries:
        await _patch_metadata(client, runtime, {})


async def _patch_metadata(client: Client, runtime: Object, changes: Object) -> None:
    metadata = runtime["metadata"]
    entries = release_fields(metadata.get("managedFields") or [])
    head = {"resourceVersion": metadata["resourceVersion"], **({"managedFields": entries} if entries else {})}
    patch = {"metadata": {**head, **changes}}
    await client.patch(CLUSTER_TRAINING_RUNTIMES, metadata["name"], PatchType.MERGE, patch, options=_MANAGER)


def release_fields(entries: list[Object]) -> list[Object]:
    """managedFields in which the installer owns only annotations.

    Otherwise `kubectl apply --server-side` of another manifest of the runtime would report a conflict.
    """
    return [_keep_annotations(entry) if entry.get("manager") == _MANAGER.field_manager else entry for entry in entries]


def _keep_annotations(entry: Object) -> Object:
    annotations = read_fields(entry, "fieldsV1", "f:metadata").get("f:annotations", {})
    return {**entry, "fieldsV1": {"f:metadata": {"f:annotations": annotations}}}
