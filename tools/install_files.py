"""Writes what installs the operator, from `trainmaster/operator/install`: the chart, the files for kustomize, the page
about values, and the copies of alerts and dashboard in deploy/.

Usage: `python -m tools.install_files` writes; `--check` fails when a file is not what the code says, as a test does.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import textwrap
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from tools.settings_page import read_docs
from trainmaster.api.meta import Object
from trainmaster.operator.install import Values, read_values
from trainmaster.operator.install.building import list_all_documents, list_documents
from trainmaster.operator.install.contradictions import REFUSALS
from trainmaster.operator.install.monitoring import ALERTS, DASHBOARD, read_file
from trainmaster.operator.install.reading import to_mapping
from trainmaster.operator.install.schema import build_schema, to_key
from trainmaster.operator.names import NAMESPACE
from trainmaster.operator.templating.evaluating import ValueScope, evaluate_all
from trainmaster.operator.templating.helm import HelmWriter
from trainmaster.operator.templating.nodes import Document
from trainmaster.version import __version__

ROOT = Path(__file__).resolve().parent.parent
CHART, KUSTOMIZE = "deploy/chart", "deploy/operator"
_WRITTEN = "Written by tools/install_files.py from trainmaster/operator/install; do not edit by hand."
_WIDTH = 110
VARIANTS: Mapping[str, Object] = {
    "companion": {"companion": True},
    "namespaced": {"watchNamespaces": ["team-a", "team-b"]},
}
"""The folders beside the default, with their values."""
_VARIANT_TEXTS = {
    "companion": "A companion of Kubeflow Trainer and training-operator, which only does retention.",
    "namespaced": "An operator for the namespaces team-a and team-b: replace the names with those of yours.",
}
_CHART_YAML = f"""\
# {_WRITTEN}
apiVersion: v2
name: trainmaster
description: Distributed training jobs on Kubernetes, with the Kubeflow Trainer API
type: application
version: {__version__}
appVersion: "{__version__}"
kubeVersion: ">=1.30.0-0"
"""
_NOTES = """\
{{- /* WRITTEN */ -}}
Trainmaster {{ .Chart.AppVersion }} is installed in the namespace {{ .Release.Namespace }}.

  kubectl get deployment trainmaster-operator -n {{ .Release.Namespace }}
  kubectl get events -n {{ .Release.Namespace }}     # says what keeps an operator from working
{{- if not .Values.companion }}
  kubectl get clustertrainingruntimes

It needs JobSet, which its own release installs.
{{- end }}
"""


def build_files() -> dict[str, str]:
    """Path below the root -> text."""
    files = {f"{CHART}/{name}": text for name, text in build_chart().items()}
    files |= {f"{KUSTOMIZE}/{name}": text for name, text in build_kustomize().items()}
    files["docs/values.md"] = build_page()
    files["deploy/prometheus/rules.yaml"] = read_file(ALERTS)
    files["deploy/grafana/trainmaster.json"] = read_file(DASHBOARD)
    return files


# ---- the chart ------------------------------------------------------------------


def build_chart() -> dict[str, str]:
    schema = build_schema()
    writer = HelmWriter(dict(list_shapes(schema)))
    documents = list_documents()
    head = f"{{{{- /* {_WRITTEN} */ -}}}}\n"
    files = {
        f"templates/{file}.yaml": head + writer.write_documents(group) for file, group in group_documents(documents)
    }
    return {
        "Chart.yaml": _CHART_YAML,
        "values.yaml": build_values_file(),
        "values.schema.json": json.dumps(schema, indent=1) + "\n",
        "templates/_helpers.tpl": head + writer.write_helpers(documents),
        "templates/checks.yaml": head + writer.write_refusals(REFUSALS),
        "templates/NOTES.txt": _NOTES.replace("WRITTEN", _WRITTEN),
        **files,
    }


def list_shapes(schema: Object, path: str = "") -> Iterator[tuple[str, str]]:
    """(path of a value, its type)"""
    for key, child in schema["properties"].items():
        place, kind = f"{path}{key}", child["type"]
        yield place, kind if isinstance(kind, str) else kind[0]
        if child.get("required"):
            yield from list_shapes(child, f"{place}.")


def group_documents(documents: list[Document]) -> Iterator[tuple[str, list[Document]]]:
    """By file, in their order."""
    found: dict[str, list[Document]] = {}
    for document in documents:
        found.setdefault(document.file, []).append(document)
    yield from found.items()


def build_values_file() -> str:
    lines = [f"# {_WRITTEN}", "# docs/values.md has the same as a table.", *_write_group(Values, Values(), 0)]
    return "\n".join(lines) + "\n"


def _write_group(group: type, values: object, indent: int) -> Iterator[str]:
    docs, pad = read_docs(group), " " * indent
    for item in dataclasses.fields(group):
        value, key = getattr(values, item.name), to_key(item.name)
        if not indent:
            yield ""
        yield from textwrap.wrap(docs[item.name], _WIDTH, initial_indent=f"{pad}# ", subsequent_indent=f"{pad}# ")
        if dataclasses.is_dataclass(value):
            yield f"{pad}{key}:"
            yield from _write_group(type(value), value, indent + 2)
        else:
            yield from _write_value(f"{pad}{key}:", to_mapping(values)[key], pad)


def _write_value(head: str, value: object, pad: str) -> Iterator[str]:
    if not isinstance(value, dict | list) or not value:
        yield f"{head} {json.dumps(value)}"
        return
    yield head
    for line in yaml.safe_dump(value, sort_keys=False).rstrip("\n").split("\n"):
        yield f"{pad}  {line}"


# ---- kustomize ------------------------------------------------------------------


def build_kustomize() -> dict[str, str]:
    files = _build_folder("", {}, "The operator for all namespaces, with its kinds and webhooks.")
    for name, values in VARIANTS.items():
        files |= _build_folder(f"{name}/", values, _VARIANT_TEXTS[name])
    return files


def _build_folder(folder: str, values: Object, text: str) -> dict[str, str]:
    scope = ValueScope(to_mapping(read_values(values)), NAMESPACE)
    files: dict[str, str] = {}
    for file, documents in group_documents(list_all_documents()):
        objects = evaluate_all(documents, scope)
        if objects:
            files[f"{file}.yaml"] = f"# {_WRITTEN}\n" + _dump_all(objects)
    definitions = [name for name in files if name.startswith("crds/")]
    made = {f"{folder}{name}": content for name, content in files.items() if not folder or name not in definitions}
    if definitions and not folder:
        names = [name.removeprefix("crds/") for name in definitions]
        made["crds/kustomization.yaml"] = _write_kustomization("The definitions of our kinds.", names)
    resources = [name for name in files if name not in definitions]
    if definitions:
        resources.insert(1, f"{'../' if folder else ''}crds")
    made[f"{folder}kustomization.yaml"] = _write_kustomization(f"{text} kubectl apply -k", resources, folder)
    return made


def _write_kustomization(text: str, resources: list[str], folder: str = "") -> str:
    if text.endswith("kubectl apply -k"):
        text = f"{text} --server-side {KUSTOMIZE}/{folder}".rstrip("/")
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources}
    return f"# {text}\n# {_WRITTEN}\n" + yaml.safe_dump(head, sort_keys=False)


def _dump_all(objects: list[Object]) -> str:
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=1_000_000, allow_unicode=True)


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


# ---- the page about values ------------------------------------------------------

_PAGE_HEAD = """\
# Values

Generated from `trainmaster/operator/install/values.py` by `tools/install_files.py`; do not edit.

The chart in `deploy/chart`, `trainmaster operator install` and `trainmaster operator --print-manifests --values FILE`
take the same values ([install](operator.md#install)). Names are those of Kubeflow Trainer's chart where they mean the
same. Mappings are merged with the defaults, lists replace them, and null removes a default. What is unknown, of a wrong
type or contradictory is refused with one sentence that begins with the key.
"""


def build_page() -> str:
    plain = [item for item in dataclasses.fields(Values) if not dataclasses.is_dataclass(getattr(Values(), item.name))]
    parts = [_PAGE_HEAD, "\n", *_write_table(Values, Values(), "", {item.name for item in plain})]
    for item in dataclasses.fields(Values):
        value = getattr(Values(), item.name)
        if dataclasses.is_dataclass(value):
            text = " ".join((type(value).__doc__ or "").split())
            parts += [
                f"\n## {to_key(item.name)}\n\n{text}\n\n",
                *_write_table(type(value), value, f"{to_key(item.name)}."),
            ]
    texts = [refusal.text.partition(": ") for refusal in REFUSALS]
    rows = [f"| `{key}` | {text[0].upper()}{text[1:]}. |\n" for key, _, text in texts]
    head = "\n## Contradictions\n\nThese are refused, by Helm too:\n\n| value | why |\n|---|---|\n"
    return "".join([*parts, head, *rows])


def _write_table(group: type, values: object, prefix: str, only: set[str] | None = None) -> Iterator[str]:
    yield "| value | default | meaning |\n|---|---|---|\n"
    yield from _write_rows(group, values, prefix, only)


def _write_rows(group: type, values: object, prefix: str, only: set[str] | None = None) -> Iterator[str]:
    docs, hints = read_docs(group), typing.get_type_hints(group)
    for item in dataclasses.fields(group):
        if only is not None and item.name not in only:
            continue
        value, key = getattr(values, item.name), f"{prefix}{to_key(item.name)}"
        if dataclasses.is_dataclass(value):
            yield from _write_rows(type(value), value, f"{key}.")
            continue
        is_choice = typing.get_origin(hints[item.name]) is typing.Literal
        words = typing.get_args(hints[item.name]) if is_choice else ()
        among = f" ({', '.join(word for word in words if word)})" if words else ""
        yield f"| `{key}` | `{json.dumps(to_mapping(values)[to_key(item.name)])}`{among} | {docs[item.name]} |\n"


def list_stale(root: Path = ROOT) -> list[str]:
    """Files that are not what the code says, and files that nothing writes any more."""
    files = build_files()
    stale = [name for name, text in files.items() if not (root / name).is_file() or (root / name).read_text() != text]
    found = [path for folder in (CHART, KUSTOMIZE) for path in (root / folder).rglob("*") if path.is_file()]
    return sorted(
        [*stale, *(str(path.relative_to(root)) for path in found if str(path.relative_to(root)) not in files)]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args()
    stale = list_stale()
    if options.check:
        print("\n".join(f"{name} is not what the code says: run python -m tools.install_files" for name in stale))
        return 1 if stale else 0
    files = build_files()
    for name in stale:
        if name in files:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(files[name])
        else:
            (ROOT / name).unlink()
    print("\n".join(stale))
    return 0


if __name__ == "__main__":
    sys.exit(main())
