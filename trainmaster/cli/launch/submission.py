"""Submits a composed job: the code and the derived runtime first, then the TrainJob.

A derived runtime may already exist, created for another job with the same request. Server-side apply creates it or
updates its time of last use, so that it is not deleted before the TrainJob refers to it.
"""

from __future__ import annotations

import argparse
from contextlib import suppress

from trainmaster.api.labels import LAST_USED
from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, CONFIG_MAPS, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.api.status import NotFound, StatusError
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.launch.manifests import MANAGER
from trainmaster.cli.servers.connection import explain, get_server, is_cluster
from trainmaster.client.contract import Client, PatchType, WriteOptions
from trainmaster.client.http import HttpClient
from trainmaster.jobs import code_maps
from trainmaster.jobs.compose.refusals import RefusalCause, judge_refusal
from trainmaster.jobs.compose.trainjob import ComposedJob
from trainmaster.kit.clock import Clock, format_time

_MANAGER = MANAGER.replace("/", "-")


async def get_runtime(client: Client, name: str, namespace: str) -> Object:
    """The namespace's TrainingRuntime with this name, else the ClusterTrainingRuntime, as in the Kubeflow SDK; with its
    kind."""
    for gvr, space, kind in (
        (TRAINING_RUNTIMES, namespace, "TrainingRuntime"),
        (CLUSTER_TRAINING_RUNTIMES, "", "ClusterTrainingRuntime"),
    ):
        try:
            return {**await client.get(gvr, name, space), "kind": kind}
        except NotFound:
            continue
    names = [entry["metadata"]["name"] for entry in (await client.list(CLUSTER_TRAINING_RUNTIMES)).items]
    text = f"there is no runtime {name!r}; there are: {', '.join(sorted(names))}"
    raise exits.Failure(f"{text} (`trainmaster runtimes`)", exits.RUN_USAGE)


async def submit(client: Client, composed: ComposedJob, clock: Clock) -> tuple[Object, list[str]]:
    """Returns the TrainJob as stored by the server, and what the user should know."""
    namespace = composed.trainjob["metadata"]["namespace"]
    options = WriteOptions(field_manager=_MANAGER, field_validation="Strict")
    config_map: Object | None = None
    try:
        if composed.config_map is not None:
            config_map = await _create_code(client, composed.config_map, options)
        if composed.runtime is not None:
            await _apply_runtime(client, composed.runtime, clock)
        trainjob = await client.create(TRAIN_JOBS, composed.trainjob, namespace, options=options)
    except StatusError as error:
        if config_map is not None and error.code < 500:  # else it is unknown whether the TrainJob was created
            await code_maps.drop(client, config_map)
        name = composed.trainjob["metadata"]["name"]
        raise exits.Failure(explain_refusal(error, name), exits.RUN_REFUSED) from None
    return trainjob, [] if config_map is None else await _settle_code(client, config_map, trainjob, clock)


async def _create_code(client: Client, config_map: Object, options: WriteOptions) -> Object:
    try:
        return await client.create(CONFIG_MAPS, config_map, config_map["metadata"]["namespace"], options=options)
    except StatusError as error:
        if error.code not in (403, 413, 422):
            raise
        text = f"the code could not be sent, as a ConfigMap of the job: {error.message}"
        raise exits.Failure(f"{text}; use --no-code and an image with the code", exits.RUN_CODE) from None


async def _settle_code(client: Client, config_map: Object, trainjob: Object, clock: Clock) -> list[str]:
    """Makes the job the owner of its code, and completes what earlier runs have left in the namespace."""
    meta = config_map["metadata"]
    try:
        await code_maps.adopt(client, config_map, trainjob)
    except StatusError as error:
        return [code_maps.explain_unowned(error, meta["name"], meta["namespace"])]
    with suppress(StatusError):  # the next run tries it again
        await code_maps.settle(client, meta["namespace"], clock.now())
    return []


async def _apply_runtime(client: Client, runtime: Object, clock: Clock) -> None:
    meta = runtime["metadata"]
    annotations = {**meta["annotations"], LAST_USED: format_time(clock.now())}
    touched = {**runtime, "metadata": {**meta, "annotations": annotations}}
    options = WriteOptions(field_manager=_MANAGER, force=True)
    await client.patch(TRAINING_RUNTIMES, meta["name"], PatchType.APPLY, touched, meta["namespace"], options=options)


def explain_refusal(error: StatusError, name: str) -> str:
    cause = judge_refusal(error)
    if cause is RefusalCause.EXISTS:
        remove = f"`trainmaster delete {name}` removes it (its record and logs stay)"
        return f"there is a job {name!r} already: leave out --name, choose another, or {remove}"
    if cause is RefusalCause.NO_NAMESPACE and error.message.startswith("namespaces "):
        namespace = error.message.split('"')[1]
        make = f"`kubectl create namespace {namespace}` makes it"
        return f"there is no namespace {namespace!r}: {make}, `kubectl get namespaces` lists those that exist"
    return f"the job was refused: {error.message}"


async def get_runtime_for_dry_run(context: CommandContext, options: argparse.Namespace, name: str) -> Object:
    """For --dry-run: the runtime from the server if one is running, else the shipped one."""
    if not is_cluster(options) and context.home(options).find_running() is None:
        options.namespace = options.namespace or "default"
        return _read_shipped(name)
    config = get_server(context, options)
    client = HttpClient(config)
    try:
        return await get_runtime(client, name, options.namespace)
    except StatusError as error:
        raise exits.Failure(str(explain(error, config, options)), exits.RUN_NO_SERVER) from None
    finally:
        await client.close()


def _read_shipped(name: str) -> Object:
    # Imported here because only a dry run without a server needs it.
    from importlib import resources

    import yaml

    folder = resources.files("trainmaster").joinpath("manifests")
    shipped = {entry.name.removesuffix(".yaml"): entry for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    if name not in shipped:
        text = f"no server runs, and there is no shipped runtime {name!r}; there are: {', '.join(sorted(shipped))}"
        raise exits.Failure(text, exits.RUN_USAGE)
    runtime: Object = yaml.safe_load(shipped[name].read_text())
    return runtime
