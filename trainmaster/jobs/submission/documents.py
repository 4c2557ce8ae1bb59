"""Reads manifests: YAML or JSON, several documents in a text, with the place of every field.

A document that is not valid YAML, or not an API object, becomes a `ManifestDocument` with problems instead of an error,
so that the problems of the other documents are reported too. Times stay text, as in kubectl; a duplicate key is a
problem; `kind: List` is split. Used by `check`, through `ordering` by `submit`, and by both in the REST API.

Invariant: the results are trees. YAML aliases that form cycles, or expand to very large documents, are refused first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

from trainmaster.api.formats.yaml_documents import find_excess
from trainmaster.api.meta import Object

_MOST_NODES = 200_000
_DEPTH = 100
"""Of documents of strangers; those of Kubernetes have about 20 levels."""
_RESOLVERS = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
"""Without dates and times, which are kept as text."""


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = _RESOLVERS


class _QuickLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # one of two
    """With libyaml, which is recursive: only for texts whose depth is known."""

    yaml_implicit_resolvers = _RESOLVERS


_AnyLoader: TypeAlias = type[_Loader] | type[_QuickLoader]


@dataclass(slots=True)
class DocumentProblem:
    text: str
    path: str = ""
    line: int = 0
    column: int = 0
    """From 1 on, as the line; 0: unknown."""


@dataclass(slots=True)
class ManifestDocument:
    source: str
    """The file, or `-`."""
    line: int
    """The line where it begins."""
    obj: Object | None = None
    lines: dict[str, int] = field(default_factory=dict)
    """Path of a field (`spec.containers[0].image`) to its line."""
    columns: dict[str, int] = field(default_factory=dict)
    """The same for columns, from 1 on."""
    problems: list[DocumentProblem] = field(default_factory=list)

    def get_column(self, path: str) -> int:
        """The column of the field; 0 if the document does not have it."""
        return self.columns.get(path, 0)

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


def parse_bounded(source: str, text: str) -> list[ManifestDocument]:
    """All documents of a text that a stranger sent, at bounded cost. Blocks for up to a second: call it in a thread."""
    try:
        found = find_excess(text.encode(), _DEPTH)
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        problem = DocumentProblem("not YAML: it has half of a surrogate pair", line=line)
        return [ManifestDocument(source, line, problems=[problem])]
    if found is not None:
        why, line, column = found
        problem = DocumentProblem(f"not accepted: {why}", line=line, column=column)
        return [ManifestDocument(source, line, problems=[problem])]
    return list(parse(source, text, _QuickLoader))


def parse(source: str, text: str, loader_type: _AnyLoader = _Loader) -> Iterator[ManifestDocument]:
    """All documents of a text, up to the first syntax error."""
    loader: _Loader | _QuickLoader | None = None
    try:
        loader = loader_type(text)
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
    column = mark.column + 1 if mark is not None else 0
    where = f"line {line}, column {column}: " if mark is not None else ""
    problem = DocumentProblem(f"not YAML: {where}{said}", line=line, column=column)
    return ManifestDocument(source, line, problems=[problem])


def _build(source: str, loader: _Loader | _QuickLoader, node: yaml.Node) -> Iterator[ManifestDocument]:
    document = ManifestDocument(source, node.start_mark.line + 1)
    try:
        _Walker(document).walk(node, "", ())
    except _Endless as error:
        document.problems.append(DocumentProblem(str(error), line=document.line))
        yield document
        return
    try:
        document.obj = loader.construct_document(node)
    except ValueError as error:
        # A number of more digits than Python converts, or `!!int x`.
        document.problems.append(DocumentProblem(f"has a value that cannot be read: {error}", line=document.line))
        yield document
        return
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
        inner.lines = _choose_below(document.lines, f"{prefix}.")
        inner.columns = _choose_below(document.columns, f"{prefix}.")
        if inner.obj is None:
            inner.problems.append(DocumentProblem(f"{prefix} is not an object", line=inner.line))
        inner.problems += [one for one in document.problems if one.path.startswith(prefix)]
        yield inner


def _choose_below(places: dict[str, int], prefix: str) -> dict[str, int]:
    return {path.removeprefix(prefix): at for path, at in places.items() if path.startswith(prefix)}


class _Endless(Exception):
    pass


class _Walker:
    """Records the place of every field, and duplicate keys."""

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
                self._note(where, item.start_mark)
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
            self._note(where, key.start_mark)
            self.walk(value, where, above)

    def _note(self, path: str, mark: yaml.Mark) -> None:
        self._document.lines[path], self._document.columns[path] = mark.line + 1, mark.column + 1
