"""Manifests as people keep them: YAML or JSON, several documents in a file, files in a directory, standard input.

Everything is read and checked for its shape before anything is sent. Used by `submit`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from trainmaster.api.meta import Object

_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_BYTES = 64 * 1024 * 1024
_FIRST = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "Secret", "ConfigMap", "PersistentVolume",
          "PersistentVolumeClaim", "ClusterTrainingRuntime", "TrainingRuntime")  # fmt: skip
_LAST = ("TrainJob",)


class ManifestError(Exception):
    """A file that cannot be used; the text says where and why."""


@dataclass(slots=True)
class Document:
    obj: Object
    place: str
    """For people: `train.yaml`, `train.yaml document 2`."""
    namespace: str = ""


def read_manifests(names: Sequence[str], stdin: TextIO) -> list[Document]:
    """In the order in which they can be made. ManifestError names the place."""
    documents = [document for name in names for document in _read(name, stdin)]
    if not documents:
        raise ManifestError(f"{', '.join(names)}: there are no objects in there")
    return sorted(documents, key=_rank)


def _rank(document: Document) -> int:
    kind = document.obj["kind"]
    if kind in _LAST:
        return len(_FIRST) + 1
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _read(name: str, stdin: TextIO) -> Iterator[Document]:
    if name == "-":
        yield from _parse(stdin.read(), "standard input")
        return
    path = Path(name).expanduser()
    try:
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file())
            if not files:
                raise ManifestError(f"{name}: no {', '.join(_SUFFIXES)} files in this directory")
            for file in files:
                yield from _parse(_load(file), str(file))
        else:
            yield from _parse(_load(path), name)
    except FileNotFoundError:
        raise ManifestError(f"{name}: there is no such file") from None
    except UnicodeDecodeError as error:
        raise ManifestError(f"{name}: this is not a text file ({error.reason})") from None
    except OSError as error:
        raise ManifestError(f"{name}: cannot be read: {error.strerror}") from None


def _load(path: Path) -> str:
    if path.is_file() and path.stat().st_size > _MOST_BYTES:
        raise ManifestError(f"{path}: {path.stat().st_size / 1e6:.0f} MB is too large for a manifest")
    return path.read_text(encoding="utf-8")


def _parse(text: str, place: str) -> Iterator[Document]:
    # Loaded by name: start-up counts, and mistakes on the command line need no YAML.
    yaml = importlib.import_module("yaml")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        values = list(yaml.load_all(text, loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ManifestError(f"{place}{where}: this is not YAML: {problem}") from None
    several = len([value for value in values if value is not None]) > 1
    for number, value in enumerate(values, 1):
        if value is not None:
            yield from _check(value, f"{place} document {number}" if several else place)


def _check(value: Any, place: str) -> Iterator[Document]:
    if not isinstance(value, dict):
        raise ManifestError(f"{place}: an object is needed, and this is a {type(value).__name__}")
    if value.get("kind") == "List" and isinstance(value.get("items"), list):
        for number, item in enumerate(value["items"], 1):
            yield from _check(item, f"{place} item {number}")
        return
    for name in ("apiVersion", "kind"):
        if not isinstance(value.get(name), str) or not value[name]:
            raise ManifestError(f"{place}: {name} is missing; is this a Kubernetes manifest?")
    meta = value.get("metadata")
    if not isinstance(meta, dict) or not (meta.get("name") or meta.get("generateName")):
        raise ManifestError(f"{place}: metadata.name is missing")
    yield Document(value, place)
