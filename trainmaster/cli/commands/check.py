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
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trainmaster.api.declaring.kinds import Fidelity
from trainmaster.app.checking.examining import CheckReport, examine, list_namespaces, to_data
from trainmaster.cli import exits, terminal
from trainmaster.cli.context import CommandContext, add_output
from trainmaster.cli.manifests.files import add_files, read_documents
from trainmaster.cli.output import print_data, print_table
from trainmaster.cli.servers.flags import add_server
from trainmaster.jobs.submission.documents import ManifestDocument

if TYPE_CHECKING:
    from trainmaster.app.checking.comparing import ComparedMachine

_LONGEST = 70
"""Maximum length of a path in a table."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_server(parser)
    parser.add_argument("--strict", action="store_true", help="treat approximated fields as errors")
    parser.add_argument("--any-machine", action="store_true", help="do not check whether jobs fit a machine")
    add_output(parser)


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
    namespaces = list_namespaces(documents)
    if not namespaces:
        return None
    # Imported here because it loads the scheduler.
    from trainmaster.cli.manifests import fitting

    return fitting.choose_machine(options, context, namespaces)


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
