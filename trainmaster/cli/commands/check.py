"""Show how every field of a manifest is handled here, whether a server would accept it, and whether it would start.

Each field is honoured, approximated (with the reason), refused (with what to do), or inert: without meaning on one
machine. The objects are then created, in order, on an empty server in memory with the shipped runtimes, to get the
responses of schema validation and admission. If a server is running, its runtimes are used instead; pass others in the
same call, before the job that uses them. Finally, the scheduler of the running server is asked when each job would
start; without a server, the job is compared with this machine.

Exit codes: 0 all objects would run, now or when there is room; 1 something is invalid or refused (with --strict, or
approximated) or can never start; 2 a file cannot be read.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trainmaster.api.declaring.fidelity import Classed, list_used
from trainmaster.api.declaring.kinds import Fidelity, Kind
from trainmaster.api.meta import Object
from trainmaster.api.v1jobs.frameworks import BY_KIND
from trainmaster.cli import exits, terminal
from trainmaster.cli.context import CommandContext, add_output
from trainmaster.cli.manifests.documents import (
    DocumentProblem,
    ManifestDocument,
    add_files,
    read_documents,
    read_namespace,
)
from trainmaster.cli.output import print_data, print_table
from trainmaster.cli.servers.flags import add_server
from trainmaster.kit.clock import SystemClock

if TYPE_CHECKING:
    from trainmaster.cli.manifests.fitting import ComparedMachine
    from trainmaster.cli.manifests.rehearsal import Rehearsal
    from trainmaster.controllers.explain.forecast import StartForecast

_LONGEST = 70
"""Maximum length of a path in a table."""
_OBVIOUS = ("apiVersion", "kind")
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_RUNNING = ("TrainJob", *BY_KIND, "JobSet", "Job", "Pod")
"""Kinds that the scheduler starts."""
_NAMED = re.compile(r"(?<![\w.])(?:spec|metadata|data)\.[\w.\[\]]+\w")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_server(parser)
    parser.add_argument("--strict", action="store_true", help="treat approximated fields as errors")
    parser.add_argument("--any-machine", action="store_true", help="do not check whether jobs fit a machine")
    add_output(parser)


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


def run(options: argparse.Namespace, context: CommandContext) -> int:
    documents = read_documents(context, options.file)
    if not documents:
        raise exits.Failure(f"{', '.join(options.file)}: nothing in it to check", exits.USAGE)
    machine = None if options.any_machine else find_machine(options, context, documents)
    reports = asyncio.run(examine(documents, options.namespace or "default", machine, strict=options.strict))
    asked = machine.name if machine is not None else ""
    if options.output == "table":
        for report in reports:
            _show(context, report)
        _sum_up(context, reports, strict=options.strict)
        if asked:
            context.note(asked)
    else:
        print_data(context, [to_data(report, asked) for report in reports], options.output)
    return exits.FAILED if any(report.errors for report in reports) else exits.OK


def find_machine(
    options: argparse.Namespace, context: CommandContext, documents: Sequence[ManifestDocument]
) -> ComparedMachine | None:
    """What jobs are compared with; None if nothing in the documents runs."""
    objects = [document.obj for document in documents if document.obj and document.obj.get("kind") in _RUNNING]
    if not objects:
        return None
    # Imported here because it loads the scheduler.
    from trainmaster.cli.manifests import fitting

    return fitting.choose_machine(options, context, set(map(read_namespace, objects)))


async def examine(
    documents: Sequence[ManifestDocument], namespace: str, machine: ComparedMachine | None, *, strict: bool = False
) -> list[CheckReport]:
    # Imported here because it loads a whole server.
    from trainmaster.cli.manifests import rehearsal

    runtimes = machine.view if machine is not None and machine.is_server else None
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
        DocumentProblem(_advise(one), one.path, document.get_line(one.path))
        for one in report.fields
        if one.fidelity is Fidelity.REFUSED or (strict and one.fidelity is Fidelity.APPROXIMATED)
    ]
    outcome = server.create(kind, obj, namespace)
    known = {problem.path for problem in report.errors}
    for path, text in outcome.errors:
        if "TrainingRuntime" in text and "not found" in text and not server.knows_runtimes:
            text += "; if a server has this runtime, give its manifest too, before the job"
        if not path or path not in known:
            report.errors.append(DocumentProblem(text, path, document.get_line(path or _find_path(text))))
    report.warnings += outcome.warnings
    report.workload = outcome.workload
    return report


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
        "errors": [{"path": one.path, "line": one.line, "text": one.text} for one in report.errors],
        "warnings": report.warnings,
        "start": {"state": report.start.state, "text": report.start.text, "asked": asked} if report.start else None,
    }


def _show(context: CommandContext, report: CheckReport) -> None:
    document = report.document
    context.say(f"{document.source}:{document.line} {report.find_name()}")
    if report.fields:
        rows = [
            (str(document.get_line(one.path)), one.fidelity.value, shorten(one.path), one.note or "")
            for one in report.fields
        ]
        print_table(context, ("LINE", "HERE", "FIELD", "NOTE"), rows)
    for line in _list_lines(report):
        context.say(line)
    context.say()


def shorten(path: str) -> str:
    """Cuts the middle out of a long path."""
    if len(path) <= _LONGEST:
        return path
    first, _, rest = path.partition(".")
    tail = rest[len(first) + 2 - _LONGEST :]
    return f"{first}.…{tail[tail.find('.') :]}" if "." in tail else f"{first}.…{tail}"


def _list_lines(report: CheckReport) -> Iterator[str]:
    for problem in report.errors:
        where = f"{report.document.source}:{problem.line}: " if problem.line else ""
        path = f"{problem.path}: " if problem.path and problem.path not in problem.text else ""
        yield terminal.clean(f"error: {where}{path}{problem.text}")
    for text in report.warnings:
        yield terminal.clean(f"warning: {text}")
    if report.start is not None:
        yield terminal.clean(f"start: {report.start.state}{f', {report.start.text}' if report.start.text else ''}")


def _sum_up(context: CommandContext, reports: Sequence[CheckReport], *, strict: bool) -> None:
    classes = Counter(one.fidelity.value for report in reports for one in report.fields)
    errors = sum(len(report.errors) for report in reports)
    counts = ", ".join(f"{classes[name.value]} {name.value}" for name in Fidelity if classes[name.value])
    starts = {report.start.state for report in reports if report.start is not None}
    good = "would run later" if "later" in starts else "would start now" if starts else "would run"
    verdict = f"{errors} error{'s' if errors != 1 else ''}" if errors else good
    if not errors and classes[Fidelity.APPROXIMATED.value] and not strict:
        verdict += "; --strict makes errors of what is approximated"
    objects = f"{len(reports)} object{'s' if len(reports) != 1 else ''}"
    context.note(f"{objects}: {f'{counts} fields; ' if counts else ''}{verdict}")
