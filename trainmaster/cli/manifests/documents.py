"""Reads manifests: YAML or JSON, several documents in a file, with the line of every field.

A document that is not valid YAML, or not an API object, becomes a `ManifestDocument` with problems instead of an error,
so that the problems of the other documents are reported too. Times stay text, as in kubectl; a duplicate key is a
problem; `kind: List` is split. Used by `check`, and through `ordering` by `submit`.

Invariant: the results are trees. YAML aliases that form cycles, or expand to very large documents, are refused first.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from trainmaster.api.meta import Object
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext

_LARGEST = 20 << 20
_MOST_NODES = 200_000
_SUFFIXES = (".yaml", ".yml", ".json")
_MAP = "tag:yaml.org,2002:map"


class _Loader(yaml.SafeLoader):
    """A loader that keeps dates and times as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(slots=True)
class DocumentProblem:
    text: str
    path: str = ""
    line: int = 0


@dataclass(slots=True)
class ManifestDocument:
    source: str
    """The file, or `-`."""
    line: int
    """The line where it begins."""
    obj: Object | None = None
    lines: dict[str, int] = field(default_factory=dict)
    """Path of a field (`spec.containers[0].image`) to its line."""
    problems: list[DocumentProblem] = field(default_factory=list)

    def get_line(self, path: str) -> int:
        """The line of the field, else of its nearest parent."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.line


def read_namespace(obj: Object) -> str:
    """The namespace in its metadata, which need not be valid; "" if there is none."""
    meta = obj.get("metadata")
    named = meta.get("namespace") if isinstance(meta, dict) else None
    return named if isinstance(named, str) else ""


def add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--file",
        action="append",
        required=True,
        metavar="FILE",
        help="a manifest, a directory of manifests, or - for standard input; repeatable",
    )


def read_documents(context: CommandContext, names: Sequence[str]) -> list[ManifestDocument]:
    """Failure with exit code 2 for files that cannot be read."""
    return [document for name in names for source, text in _read(context, name) for document in parse(source, text)]


def _read(context: CommandContext, name: str) -> Iterator[tuple[str, str]]:
    if name == "-":
        yield "-", context.stdin.read()
        return
    path = Path(name).expanduser()
    if path.is_dir():
        files = sorted(entry for entry in path.iterdir() if entry.suffix in _SUFFIXES and entry.is_file())
        if not files:
            raise exits.Failure(f"{name} has no manifest: no file ends in {', '.join(_SUFFIXES)}", exits.USAGE)
    else:
        files = [path]
    for file in files:
        try:
            if file.stat().st_size > _LARGEST:
                raise exits.Failure(f"{file} has more than {_LARGEST >> 20} MiB: is it a manifest?", exits.USAGE)
            yield str(file), file.read_text()
        except UnicodeDecodeError:
            raise exits.Failure(f"{file} is no text: give a manifest in YAML or JSON", exits.USAGE) from None
        except FileNotFoundError:
            raise exits.Failure(f"{file}: there is no such file", exits.USAGE) from None
        except OSError as error:
            raise exits.Failure(f"{file} cannot be read: {error.strerror}", exits.USAGE) from None


def parse(source: str, text: str) -> Iterator[ManifestDocument]:
    """All documents of a text, up to the first syntax error."""
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                yield from _build(source, loader, node)
    except yaml.YAMLError as error:
        yield _broken(source, error)
    finally:
        if loader is not None:
            loader.dispose()


def _broken(source: str, error: yaml.YAMLError) -> ManifestDocument:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = mark.line + 1 if mark is not None else 1
    parts = (getattr(error, "context", None), getattr(error, "problem", None))
    said = ", ".join(part for part in parts if part) or str(error).splitlines()[0]
    where = f"line {line}, column {mark.column + 1}: " if mark is not None else ""
    return ManifestDocument(source, line, problems=[DocumentProblem(f"not YAML: {where}{said}", line=line)])


def _build(source: str, loader: _Loader, node: yaml.Node) -> Iterator[ManifestDocument]:
    document = ManifestDocument(source, node.start_mark.line + 1)
    try:
        _Walker(document).walk(node, "", ())
    except _Endless as error:
        document.problems.append(DocumentProblem(str(error), line=document.line))
        yield document
        return
    document.obj = loader.construct_document(node)
    if document.obj is None:
        return  # an empty document
    if not isinstance(document.obj, dict):
        document.obj = None
        document.problems.append(
            DocumentProblem("not an object: it needs apiVersion, kind and metadata", line=document.line)
        )
    yield from _take_apart(document)


def _take_apart(document: ManifestDocument) -> Iterator[ManifestDocument]:
    obj = document.obj
    if obj is None or obj.get("kind") != "List" or not isinstance(obj.get("items"), list):
        yield document
        return
    for index, item in enumerate(obj["items"]):
        prefix = f"items[{index}]"
        inner = ManifestDocument(document.source, document.get_line(prefix), item if isinstance(item, dict) else None)
        inner.lines = {
            path.removeprefix(f"{prefix}."): line
            for path, line in document.lines.items()
            if path.startswith(f"{prefix}.")
        }
        if inner.obj is None:
            inner.problems.append(DocumentProblem(f"{prefix} is not an object", line=inner.line))
        inner.problems += [one for one in document.problems if one.path.startswith(prefix)]
        yield inner


class _Endless(Exception):
    pass


class _Walker:
    """Records the line of every field, and duplicate keys."""

    def __init__(self, document: ManifestDocument) -> None:
        self._document = document
        self._count = 0

    def walk(self, node: yaml.Node, path: str, above: tuple[int, ...]) -> None:
        self._count += 1
        if id(node) in above:
            raise _Endless(f"{path or 'the document'} contains itself, by a reference (*)")
        if self._count > _MOST_NODES:
            raise _Endless(f"more than {_MOST_NODES} values: references (*) multiply them, or this is no manifest")
        inner = (*above, id(node))
        if isinstance(node, yaml.MappingNode):
            self._walk_mapping(node, path, inner)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                where = f"{path}[{index}]"
                self._document.lines[where] = item.start_mark.line + 1
                self.walk(item, where, inner)

    def _walk_mapping(self, node: yaml.MappingNode, path: str, above: tuple[int, ...]) -> None:
        seen: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            where = f"{path}.{name}" if path else name
            if name in seen and name != "<<":
                text = f"{where} stands twice, in lines {seen[name]} and {line}: the first one is lost"
                self._document.problems.append(DocumentProblem(text, where, line))
            seen[name] = line
            self._document.lines[where] = line
            self.walk(value, where, above)
