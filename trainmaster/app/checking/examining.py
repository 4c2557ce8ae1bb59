"""Examines manifests: how each field is handled here, whether a server would accept the objects, when they would start.

The objects are created, in order, on an empty server in memory (`rehearsal`); then the scheduler of a real one predicts
when they would start (`comparing`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trainmaster.api.declaring.fidelity import Classed, list_used
from trainmaster.api.declaring.kinds import Fidelity, Kind
from trainmaster.api.meta import Object
from trainmaster.api.v1jobs.frameworks import BY_KIND
from trainmaster.jobs.submission.documents import DocumentProblem, ManifestDocument, read_namespace
from trainmaster.kit.clock import SystemClock

if TYPE_CHECKING:
    from trainmaster.app.checking.comparing import ComparedMachine
    from trainmaster.app.checking.rehearsal import Rehearsal
    from trainmaster.client.listed import ListedView
    from trainmaster.controllers.explain.forecast import StartForecast

_OBVIOUS = ("apiVersion", "kind")
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_RUNNING = ("TrainJob", *BY_KIND, "JobSet", "Job", "Pod")
"""Kinds that the scheduler starts."""
_NAMED = re.compile(r"(?<![\w.])(?:spec|metadata|data)\.[\w.\[\]]+\w")


@dataclass(slots=True)
class CheckReport:
    """The findings about one document."""

    document: ManifestDocument
    kind: Kind | None = None
    fields: list[Classed] = field(default_factory=list)
    errors: list[DocumentProblem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    workload: Object | None = None
    """The JobSet, v1 job, Job or Pod that it becomes on a server."""
    start: StartForecast | None = None

    def find_name(self) -> str:
        meta = (self.document.obj or {}).get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        name = meta.get("name") or f"{meta.get('generateName', '')}*"
        return f"{(self.document.obj or {}).get('kind', 'document')} {name}" if self.document.obj else "document"


def list_namespaces(documents: Sequence[ManifestDocument]) -> set[str]:
    """Those of the objects that the scheduler starts, "" where none is named; empty if there are no such objects."""
    objects = [document.obj for document in documents if document.obj and document.obj.get("kind") in _RUNNING]
    return set(map(read_namespace, objects))


async def examine(
    documents: Sequence[ManifestDocument],
    namespace: str,
    machine: ComparedMachine | None,
    *,
    strict: bool = False,
    runtimes: ListedView | None = None,
) -> list[CheckReport]:
    """`runtimes`: a view of a server, whose runtimes are used; by default that of the machine, if it is a server's."""
    # Imported here because it loads a whole server.
    from trainmaster.app.checking import rehearsal

    if runtimes is None and machine is not None and machine.is_server:
        runtimes = machine.view
    async with rehearsal.open_rehearsal(SystemClock(), runtimes) as server:
        reports = [_examine(server, document, namespace, strict=strict) for document in documents]
    for report in reports:
        if machine is not None and report.workload is not None:
            report.start = machine.predict(report.workload)
            obstacles = report.start.obstacles if report.start is not None else ()
            report.errors += [DocumentProblem(text) for text in obstacles]
    return reports


def _examine(server: Rehearsal, document: ManifestDocument, namespace: str, *, strict: bool) -> CheckReport:
    report = CheckReport(document, errors=list(document.problems))
    obj = document.obj
    if obj is None:
        return report
    report.kind = kind = server.find_kind(obj)
    if kind is None:
        text = _explain_kustomization(document) or _explain_unknown(server, obj)
        report.errors.append(DocumentProblem(text, line=document.get_line("kind")))
        return report
    report.fields = [one for one in list_used(kind, obj) if one.path not in _OBVIOUS]
    report.errors += [
        _build_problem(document, _advise(one), one.path)
        for one in report.fields
        if one.fidelity is Fidelity.REFUSED or (strict and one.fidelity is Fidelity.APPROXIMATED)
    ]
    outcome = server.create(kind, obj, namespace)
    known = {problem.path for problem in report.errors}
    for path, text in outcome.errors:
        if "TrainingRuntime" in text and "not found" in text and not server.knows_runtimes:
            text += "; if a server has this runtime, give its manifest too, before the job"
        if not path or path not in known:
            report.errors.append(_build_problem(document, text, path))
    report.warnings += outcome.warnings
    report.workload = outcome.workload
    return report


def _build_problem(document: ManifestDocument, text: str, path: str) -> DocumentProblem:
    """At the place of the field, or of the one that the text names."""
    where = path or _find_path(text)
    return DocumentProblem(text, path, document.get_line(where), document.get_column(where))


def _advise(one: Classed) -> str:
    note = f": {one.note}" if one.note else ""
    if one.fidelity is Fidelity.APPROXIMATED:
        return f"approximated{note}"
    return f"not carried out on one machine{note}; remove it, or run the job on a cluster"


def _explain_kustomization(document: ManifestDocument) -> str:
    """What to do about a file for `kubectl apply -k`; "" if it is none."""
    path = Path(document.source)
    if path.name not in _KUSTOMIZATIONS and (document.obj or {}).get("kind") != "Kustomization":
        return ""
    return f"this is a kustomization: `kubectl kustomize {path.parent} | trainmaster check -f -` checks what it builds"


def _explain_unknown(server: Rehearsal, obj: Object) -> str:
    version, name = obj.get("apiVersion"), obj.get("kind")
    if not isinstance(version, str) or not isinstance(name, str) or not version or not name:
        missing = " and ".join(
            key for key in ("apiVersion", "kind") if not isinstance(obj.get(key), str) or not obj[key]
        )
        return f"{missing} must be given, as text"
    kinds = server.catalogue.kinds
    same = sorted({kind.api_version for kind in kinds if kind.kind == name})
    if same:
        return f"{name} is served as {', '.join(same)}, not as {version}"
    close = difflib.get_close_matches(name, sorted({kind.kind for kind in kinds}), n=1)
    hint = f": did you mean {close[0]}?" if close else "; docs/kinds.md lists what is"
    return f"no kind {name} of {version} is served here{hint}"


def _find_path(text: str) -> str:
    """The field that an error message names: `unknown field "spec.foo"`, `... denied the request: spec.foo: ...`."""
    found = _NAMED.search(text)
    return found[0] if found else ""


def to_data(report: CheckReport, asked: str = "") -> dict[str, object]:
    document, obj = report.document, report.document.obj or {}
    meta = obj.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    return {
        "source": document.source,
        "line": document.line,
        "apiVersion": obj.get("apiVersion"),
        "kind": obj.get("kind"),
        "namespace": meta.get("namespace"),
        "name": meta.get("name"),
        "ok": not report.errors,
        "fields": [
            {"path": one.path, "line": document.get_line(one.path), "class": one.fidelity.value, "note": one.note}
            for one in report.fields
        ],
        "errors": [
            {"path": one.path, "line": one.line, "column": one.column or None, "text": one.text}
            for one in report.errors
        ],
        "warnings": report.warnings,
        "start": {"state": report.start.state, "text": report.start.text, "asked": asked} if report.start else None,
    }
