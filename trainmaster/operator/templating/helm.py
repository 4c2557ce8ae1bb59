"""Writes descriptions (`nodes`) as Helm templates: text that Helm, with the same values, makes the same objects of.

The text is meant to be read by people too: block style, one `if` per condition, helpers for what has a name. Helm's
action `{{- ... }}` removes the line break before it, so an action stands on a line of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import yaml

from trainmaster.operator.templating.nodes import (
    ALL_OF,
    All,
    Checksum,
    Condition,
    Document,
    EachItem,
    Either,
    Equals,
    Exceeds,
    Expanded,
    Fallback,
    ForEach,
    Given,
    Has,
    IsNew,
    LeftOut,
    MergedWith,
    NamedPart,
    Not,
    Refusal,
    ReleaseNamespace,
    ReleaseVersion,
    Text,
    Toml,
    Tree,
    Value,
    When,
)

PREFIX = "trainmaster."
_NODES = (
    Value,
    Expanded,
    ReleaseNamespace,
    ReleaseVersion,
    EachItem,
    Text,
    Fallback,
    When,
    ForEach,
    MergedWith,
    NamedPart,
    Toml,
    Checksum,
)
_STEP = 2


class HelmWriter:
    """`shapes`: the JSON type of each value, by its path."""

    def __init__(self, shapes: Mapping[str, str]) -> None:
        self._shapes = shapes
        self._loops = 0

    # ---- files ------------------------------------------------------------------

    def write_documents(self, documents: Iterable[Document]) -> str:
        lines: list[str] = []
        for document in documents:
            lines += self._write_document(document.body)
        return "\n".join(lines) + "\n"

    def write_refusals(self, refusals: Iterable[Refusal]) -> str:
        lines = []
        for refusal in refusals:
            lines += [f"{{{{- if {self._test(refusal.condition)} }}}}"]
            lines += [f"{{{{- fail {json.dumps(refusal.text)} }}}}", "{{- end }}"]
        return "\n".join(lines) + "\n"

    def write_helpers(self, documents: Iterable[Document]) -> str:
        """The definitions of all that has a name."""
        found: dict[str, Tree] = {}
        for document in documents:
            for node in _walk(document.body):
                if isinstance(node, NamedPart):
                    found[node.name] = node.body
                elif isinstance(node, Expanded):
                    found[f"{PREFIX}{node.path}"] = node
        parts = []
        for name in sorted(found):
            lines = self._define(found[name])
            parts.append("\n".join([f'{{{{- define "{name}" -}}}}', *lines, "{{- end }}"]))
        return "\n\n".join(parts) + "\n"

    def _write_document(self, tree: Tree) -> list[str]:
        if isinstance(tree, When):
            return self._choose(tree, self._write_document)
        if isinstance(tree, ForEach):
            return self._repeat(tree, self._write_document, 0)
        if isinstance(tree, list):
            return [line for one in tree for line in self._write_document(one)]
        assert isinstance(tree, Mapping), tree
        return ["---", *self._write_mapping(tree, 0)]

    def _define(self, tree: Tree) -> list[str]:
        match tree:
            case Expanded():
                every = " ".join(json.dumps(one) for one in tree.every)
                value = self._refer(tree.path)
                return [f'{{{{- ternary (list {every}) {value} (has "{ALL_OF}" {value}) | toJson -}}}}']
            case Toml():
                return self._write_settings(tree)
            case MergedWith():
                return self._write_merged(tree, 0)
        return [self._insert(tree)]

    # ---- mappings and lists -----------------------------------------------------

    def _write_mapping(self, tree: Mapping[str, Tree], indent: int) -> list[str]:
        if not _has_nodes(tree):
            return _indent(_dump(tree), indent)
        return [line for key, child in tree.items() for line in self._write_entry(key, child, indent)]

    def _write_entry(self, key: str, tree: Tree, indent: int) -> list[str]:
        pad = " " * indent
        if not _has_nodes(tree):
            return _indent(_write_literal(key, tree), indent)
        match tree:
            case When():
                return self._choose(tree, lambda child: self._write_entry(key, child, indent), indent)
            case Mapping():
                return [f"{pad}{key}:", *self._write_mapping(tree, indent + _STEP)]
            case MergedWith():
                return [f"{pad}{key}:", *self._write_merged(tree, indent + _STEP)]
            case list() | tuple():
                return [f"{pad}{key}:", *self._write_list(tree, indent)]
            case ForEach():
                return [f"{pad}{key}:", *self._repeat(tree, lambda child: self._write_element(child, indent), indent)]
            case Value() if self._shapes[tree.path] in ("array", "object"):
                inner = " " * (indent + _STEP)
                return [f"{pad}{key}:", f"{inner}{{{{- toYaml {self._refer(tree.path)} | nindent {indent + _STEP} }}}}"]
            case NamedPart(name=name, body=MergedWith()):
                return [f"{pad}{key}:", f"{pad}  {{{{- include {json.dumps(name)} $ | nindent {indent + _STEP} }}}}"]
            case NamedPart(name=name, body=Toml()):
                return [f"{pad}{key}: |", f"{pad}  {{{{- include {json.dumps(name)} $ | nindent {indent + _STEP} }}}}"]
        return [f"{pad}{key}: {self._write_scalar(tree)}"]

    def _write_list(self, tree: Sequence[Tree], indent: int) -> list[str]:
        return [line for child in tree for line in self._write_element(child, indent)]

    def _write_element(self, tree: Tree, indent: int) -> list[str]:
        pad = " " * indent
        if isinstance(tree, list | tuple):
            return self._write_list(tree, indent)
        if not _has_nodes(tree):
            return _indent(_dump([tree]), indent)
        match tree:
            case When():
                return self._choose(tree, lambda child: self._write_element(child, indent), indent)
            case ForEach():
                return self._repeat(tree, lambda child: self._write_element(child, indent), indent)
            case Value() if self._shapes[tree.path] == "array":
                value = self._refer(tree.path)
                return [
                    f"{pad}{{{{- with {value} }}}}",
                    f"{pad}{{{{- toYaml . | nindent {indent} }}}}",
                    f"{pad}{{{{- end }}}}",
                ]
            case Mapping():
                first = next(key for key, child in tree.items() if not isinstance(child, When))
                lines = self._write_mapping({first: tree[first], **tree}, indent + _STEP)
                return [f"{pad}- {lines[0][indent + _STEP :]}", *lines[1:]]
        return [f"{pad}- {self._write_scalar(tree)}"]

    def _write_merged(self, tree: MergedWith, indent: int) -> list[str]:
        pad = " " * indent
        values = [self._refer(value.path) for value in tree.more]
        # The first one is stronger with `merge`.
        more = values[0] if len(values) == 1 else f"(merge (dict) {' '.join(reversed(values))})"
        with_them = [
            f"{pad}{{{{- with {more} }}}}",
            f"{pad}{{{{- toYaml . | nindent {indent} }}}}",
            f"{pad}{{{{- end }}}}",
        ]
        return [*self._write_mapping(tree.entries, indent), *with_them]

    def _choose(self, tree: When, write: _Write, indent: int = 0) -> list[str]:
        pad = " " * indent
        lines = [f"{pad}{{{{- if {self._test(tree.condition)} }}}}", *write(tree.then)]
        if not isinstance(tree.otherwise, LeftOut):
            lines += [f"{pad}{{{{- else }}}}", *write(tree.otherwise)]
        return [*lines, f"{pad}{{{{- end }}}}"]

    def _repeat(self, tree: ForEach, write: _Write, indent: int) -> list[str]:
        pad, items = " " * indent, self._refer(tree.items.path)
        if isinstance(tree.items, Expanded):
            items = f'(include "{PREFIX}{tree.items.path}" $ | fromJsonArray)'
        self._loops += 1
        lines = write(tree.body)
        self._loops -= 1
        return [f"{pad}{{{{- range {items} }}}}", *lines, f"{pad}{{{{- end }}}}"]

    # ---- scalars ----------------------------------------------------------------

    def _write_scalar(self, tree: Tree) -> str:
        match tree:
            case Value():
                shape, value = self._shapes[tree.path], self._refer(tree.path)
                if shape == "string":
                    return f"{{{{ {value} | quote }}}}"
                return f"{{{{ int64 {value} }}}}" if shape == "integer" else f"{{{{ {value} }}}}"
            case NamedPart():
                return f"{{{{ include {json.dumps(tree.name)} $ | quote }}}}"
            case Checksum():
                return f"{{{{ include {json.dumps(tree.text.name)} $ | sha256sum }}}}"
            case ReleaseNamespace() | ReleaseVersion() | EachItem() | Fallback():
                return f"{{{{ {self._express(tree)} | quote }}}}"
        return f'"{self._insert(tree)}"'

    def _insert(self, tree: Tree) -> str:
        """Within a text in double quotes."""
        match tree:
            case str():
                return _escape(json.dumps(tree, ensure_ascii=False)[1:-1])
            case Text():
                return "".join(self._insert(part) for part in tree.parts)
            case When():
                is_empty = isinstance(tree.otherwise, LeftOut) or tree.otherwise == ""
                otherwise = "" if is_empty else f"{{{{ else }}}}{self._insert(tree.otherwise)}"
                return f"{{{{ if {self._test(tree.condition)} }}}}{self._insert(tree.then)}{otherwise}{{{{ end }}}}"
        return f"{{{{ {self._express(tree)} }}}}"

    def _express(self, tree: Tree) -> str:
        match tree:
            case Value():
                value = self._refer(tree.path)
                return f"int64 {value}" if self._shapes[tree.path] == "integer" else value
            case ReleaseNamespace():
                return f"{self._root}.Release.Namespace"
            case ReleaseVersion():
                return f"{self._root}.Chart.AppVersion"
            case EachItem():
                return "."
            case Fallback():
                return f"{self._refer(tree.value.path)} | default {self._express(tree.otherwise)}"
            case str() | int():
                return json.dumps(tree)
        raise AssertionError(f"cannot stand in a text: {tree}")

    @property
    def _root(self) -> str:
        return "$" if self._loops else ""

    def _refer(self, path: str) -> str:
        return f"{self._root}.Values.{path}"

    # ---- conditions -------------------------------------------------------------

    def _test(self, condition: Condition) -> str:
        text = self._join(condition)
        return text[1:-1] if text.startswith("(") else text

    def _join(self, condition: Condition) -> str:
        match condition:
            case Value():
                return self._refer(condition.path)
            case Given():
                return f'(not (kindIs "invalid" {self._refer(condition.path)}))'
            case Equals():
                return f"(eq {self._refer(condition.path)} {json.dumps(condition.literal)})"
            case Has():
                tests = [f"(has {json.dumps(one)} {self._refer(condition.path)})" for one in condition.elements]
                return tests[0] if len(tests) == 1 else f"(or {' '.join(tests)})"
            case Exceeds():
                return f"(gt {self._count(Value(condition.path))} {self._count(condition.number)})"
            case IsNew():
                return f'(not (lookup "{condition.api_version}" "{condition.kind}" "" "{condition.name}"))'
            case Not():
                return f"(not {self._join(condition.condition)})"
            case All() | Either():
                word = "and" if isinstance(condition, All) else "or"
                return f"({word} {' '.join(self._join(one) for one in condition.conditions)})"

    def _count(self, number: int | Value) -> str:
        if isinstance(number, int):
            return str(number)
        value = self._refer(number.path)
        return f"(len {value})" if self._shapes[number.path] == "array" else f"(int64 {value})"

    # ---- settings ---------------------------------------------------------------

    def _write_settings(self, tree: Toml) -> list[str]:
        lines: list[str] = []
        for number, (name, entries) in enumerate(tree.groups.items()):
            group = f"${name}"
            lines.append(f"{{{{- {group} := dict -}}}}")
            for key, child in entries.items():
                lines += self._set(group, key, child)
            if number == len(tree.groups) - 1:
                more = self._refer(tree.more.path)
                lines.append(
                    f"{{{{- range $key, $value := {more} }}}}{{{{- $_ := set {group} $key $value }}}}{{{{- end -}}}}"
                )
        for name in tree.groups:
            lines += [f"[{name}]", f"{{{{- range $key, $value := ${name} }}}}"]
            lines += ["{{ $key }} = {{ toJson $value }}", "{{- end }}", ""]
        return lines[:-1]

    def _set(self, group: str, key: str, tree: Tree) -> list[str]:
        if isinstance(tree, When):
            assert isinstance(tree.otherwise, LeftOut), key
            (line,) = self._set(group, key, tree.then)
            return [f"{{{{- if {self._test(tree.condition)} }}}}{line}{{{{- end -}}}}"]
        return [f'{{{{- $_ := set {group} "{key}" ({self._express(tree)}) -}}}}']


_Write = Callable[[Tree], list[str]]


def _walk(tree: Tree) -> Iterator[Tree]:
    """All nodes and literals in a tree, from the outside."""
    yield tree
    match tree:
        case Mapping():
            children: Iterable[Tree] = tree.values()
        case list() | tuple():
            children = tree
        case When():
            children = (tree.then, tree.otherwise)
        case ForEach():
            children = (tree.items, tree.body)
        case MergedWith():
            children = tree.entries.values()
        case NamedPart():
            children = (tree.body,)
        case Text():
            children = tree.parts
        case Checksum():
            children = (tree.text,)
        case _:
            children = ()
    for child in children:
        yield from _walk(child)


def _has_nodes(tree: Tree) -> bool:
    return any(isinstance(node, _NODES) for node in _walk(tree))


def _write_literal(key: str, tree: Tree) -> list[str]:
    if isinstance(tree, str) and "\n" in tree.rstrip("\n"):
        # A file in a ConfigMap.
        return [f"{key}: |", *(f"  {line}" for line in _escape(tree).rstrip("\n").split("\n"))]
    return _dump({key: tree})


def _dump(tree: Tree) -> list[str]:
    text = yaml.dump(tree, Dumper=yaml.CSafeDumper, sort_keys=False, width=1_000_000, allow_unicode=True)
    return _escape(text).rstrip("\n").split("\n")


def _escape(text: str) -> str:
    return text.replace("{{", '{{ "{{" }}')


def _indent(lines: list[str], indent: int) -> list[str]:
    return [f"{' ' * indent}{line}" if line else line for line in lines]
