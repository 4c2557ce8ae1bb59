"""Convert jobs of kubeflow.org/v1 (PyTorchJob, TFJob, MPIJob, ...) to TrainJobs.

  trainmaster convert -f pytorch-dist-job.yaml > trainjob.yaml
  kubectl kustomize overlay/ | trainmaster convert -f -

Prints a TrainingRuntime and a TrainJob for each job, ready for kubectl apply. Objects of other kinds are printed
unchanged. The report goes to standard error: what stays the same, what changes (variables that scripts read, names of
Pods), and what a TrainJob cannot express, with what to do about it. With --check the objects are also created on an
empty server in memory, and the variables that the Pods of both would see are compared.

Exit codes: 0 converted; 1 a job is invalid, or with --check the result would be refused; 2 a file cannot be used.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Sequence

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_fields
from trainmaster.api.v1jobs.frameworks import BY_KIND
from trainmaster.api.v1jobs.validation import admit
from trainmaster.app.checking.rehearsal import Rehearsal, open_rehearsal
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.manifests.files import add_files, read_manifests
from trainmaster.cli.output import print_data
from trainmaster.controllers.v1jobs.pods import build_pod
from trainmaster.jobs.conversion.convert import Conversion, convert
from trainmaster.jobs.conversion.roles import find_main
from trainmaster.jobs.models.v1jobs import MODELS, V1Job
from trainmaster.jobs.submission.ordering import Manifest
from trainmaster.kit.clock import SystemClock

_MODELS = {model.framework.kind: model for model in MODELS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    parser.add_argument("--check", action="store_true", help="test the result, and compare what Pods would see")
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="default: yaml")


def run(options: argparse.Namespace, context: CommandContext) -> int:
    manifests = read_manifests(context, options.file)
    conversions: list[tuple[V1Job, Conversion]] = []
    printed: list[Object] = []
    for manifest in manifests:
        job = _read_job(manifest)
        if job is None:
            printed.append(manifest.obj)
            continue
        found = convert(job)
        conversions.append((job, found))
        printed += [found.runtime, found.trainjob]
    if not conversions:
        raise exits.Failure(f"no v1 job in {', '.join(options.file)}: nothing to convert", exits.USAGE)
    _print(context, printed, options.output)
    problems = asyncio.run(_check(conversions)) if options.check else {}
    for job, found in conversions:
        _report(context, job, found, problems.get(job.name))
    return exits.FAILED if any(texts and texts[0] for texts in problems.values()) else exits.OK


def _read_job(manifest: Manifest) -> V1Job | None:
    kind = manifest.obj["kind"]
    if kind not in BY_KIND:
        return None
    text = admit(BY_KIND[kind], manifest.obj, None).text
    if text:
        raise exits.Failure(f"{kind} {manifest.obj['metadata'].get('name', '')}: {text}", exits.FAILED)
    # A model reads a stored object, which has a uid.
    return _MODELS[kind]({**manifest.obj, "metadata": {"uid": "", **manifest.obj["metadata"]}})


def _print(context: CommandContext, objects: Sequence[Object], form: str) -> None:
    if form == "json":
        print_data(context, {"apiVersion": "v1", "kind": "List", "items": list(objects)}, form)
        return
    for number, obj in enumerate(objects):
        if number:
            context.say("---")
        print_data(context, obj, form)


def _report(
    context: CommandContext, job: V1Job, found: Conversion, checked: tuple[list[str], list[str]] | None
) -> None:
    context.note(f"{job.framework.kind} {job.name} -> TrainJob {job.name}, with a TrainingRuntime of that name")
    errors, compared = checked if checked is not None else ([], [])
    groups = {
        "the same": found.same,
        "changes": found.changes,
        "not possible": found.lost,
        "variables": compared,
        "refused": errors,
    }
    for title, lines in groups.items():
        for line in lines:
            context.note(f"  {title + ':':<14}{line}")


async def _check(conversions: Sequence[tuple[V1Job, Conversion]]) -> dict[str, tuple[list[str], list[str]]]:
    """By name of the job: why the result would be refused, and how the variables of its Pods differ."""
    async with open_rehearsal(SystemClock()) as server:
        return {job.name: _rehearse(server, job, found) for job, found in conversions}


def _rehearse(server: Rehearsal, job: V1Job, found: Conversion) -> tuple[list[str], list[str]]:
    errors: list[str] = []
    workload: Object | None = None
    for obj in (found.runtime, found.trainjob):
        kind = server.find_kind(obj)
        assert kind is not None, "TrainJobs and their runtimes are served"
        outcome = server.create(kind, obj, job.namespace or "default")
        errors += [f"{path}: {text}" if path else text for path, text in outcome.errors]
        workload = outcome.workload or workload
    return errors, list(_compare(job, workload)) if workload is not None else []


def _compare(job: V1Job, workload: Object) -> Iterator[str]:
    after = {
        variable["name"]
        for replicated in list_items(workload, "spec", "replicatedJobs")
        for container in list_items(read_fields(replicated, "template", "spec", "template", "spec"), "containers")
        for variable in list_items(container, "env")
    }
    before = {name for replica in job.replicas.values() if replica.count for name in _list_names(job, replica.type)}
    for text, names in (("only before", before - after), ("only after", after - before), ("both", before & after)):
        if names:
            yield f"{text}: {', '.join(sorted(names))}"


def _list_names(job: V1Job, kind: str) -> list[str]:
    """The variables of the first Pod of a replica type."""
    replica = job.replicas[kind]
    pod = build_pod(job, replica, 0)
    main = find_main(job, replica)
    containers: Sequence[Fields] = list_items(pod, "spec", "containers")
    own = [one for one in containers if main is not None and one.get("name") == main.get("name")]
    return [variable["name"] for container in own for variable in list_items(container, "env")]
