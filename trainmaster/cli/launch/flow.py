"""A run from its request to its end: get the runtime, pack the code, submit, show the view.

The command `run` starts a server, if necessary, before it imports this module, so that both load in parallel.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError
from trainmaster.api.training.steps import NODE, find_trainer, get_ml_policy, get_template_spec, list_jobs
from trainmaster.app.home.folder import Home
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.launch import programs, submission
from trainmaster.cli.launch.manifests import SHAPE, list_local
from trainmaster.cli.launch.programs import TrainingProgram
from trainmaster.cli.launch.run_options import RunOptionError
from trainmaster.cli.launch.servers import StartingServer, explain_ended
from trainmaster.cli.servers.connection import explain, is_cluster
from trainmaster.cli.view.sharing import SharingClient
from trainmaster.client.http import HttpClient
from trainmaster.jobs.compose.request import JobRequest, MountedCode
from trainmaster.jobs.compose.trainjob import ComposedJob, compose
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.ids import SystemIds

if TYPE_CHECKING:
    from trainmaster.cli.view.attaching import Attachment
    from trainmaster.cli.view.following import FollowedJob
    from trainmaster.client.kubeconfig import ClusterConfig


def print_manifests(
    options: argparse.Namespace, context: CommandContext, program: TrainingProgram, request: JobRequest
) -> int:
    """For --dry-run: starts nothing. The runtime comes from a running server, else it is the shipped one. The code is
    packed, so that the printed manifest can be submitted with kubectl."""
    base = asyncio.run(submission.get_runtime_for_dry_run(context, options, find_runtime_name(options, program)))
    if is_cluster(options):
        code = _carry(options, program, context.home(options), request, base)
    else:
        code = _send(options, program, context.home(options))
    composed = compile_job(request, program, options, base, code)
    if options.output_format == "json":
        context.say(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(composed.objects)}, indent=2))
        return exits.OK
    import yaml

    for text in list_local(composed):
        context.say(f"# {text}")
    for obj in composed.objects:
        context.say("---")
        context.say(yaml.safe_dump(obj, sort_keys=False, allow_unicode=True).rstrip())
    return exits.OK


def run_job(
    options: argparse.Namespace,
    context: CommandContext,
    program: TrainingProgram,
    request: JobRequest,
    server: StartingServer,
) -> int:
    return asyncio.run(_run(options, context, program, request, server))


async def _run(
    options: argparse.Namespace,
    context: CommandContext,
    program: TrainingProgram,
    request: JobRequest,
    server: StartingServer,
) -> int:
    clock = SystemClock()
    # While a server starts, pack the code and import modules that are needed later.
    code = None if server.home is None else _send(options, program, server.home)
    if server.is_starting:
        context.note("trainmaster: starting a server; `trainmaster down` stops it")
        _load_early()
    config = await server.find(clock)
    client = SharingClient(config, carried=server.home is not None)
    try:
        base = await submission.get_runtime(client, find_runtime_name(options, program), options.namespace)
        if server.home is None:
            code = _carry(options, program, context.home(options), request, base, SystemIds().suffix(10))
        composed = compile_job(request, program, options, base, code)
        if server.home is not None:
            await _check_environment(options, context, client, program, base, server.home)
        if server.home is not None and (request.nodes > 1 or request.processes not in ("", "1")):
            _check_memory(options, context, request, program, base, composed, server.home)
        if request.resources or request.nodes > 1:
            from trainmaster.cli.launch import capacity

            await capacity.check_capacity(client, request)
        if request.secrets or request.secret_variables or request.mounts:
            from trainmaster.cli.launch import references

            await references.check_references(client, request, options.namespace)
        trainjob, notes = await submission.submit(client, composed, clock)
        for text in (*client.warnings, *notes):
            context.note(f"trainmaster: warning: {text}")
        client.warnings.clear()
        from trainmaster.cli.view import following  # after submitting, while the job starts

        root = None if code is None or server.home is None else program.root
        job = following.FollowedJob(options, context, client, clock, trainjob, server.home, root)
        return await _show(job, _build_attachment(job, config, request, base) if request.stdin else None)
    except StatusError as error:
        text = explain_ended(server.home) or str(explain(error, config, options))
        raise exits.Failure(text, exits.RUN_NO_SERVER) from None
    finally:
        await client.close()


def _check_memory(
    options: argparse.Namespace,
    context: CommandContext,
    request: JobRequest,
    program: TrainingProgram,
    base: Object,
    composed: ComposedJob,
    home: Home,
) -> None:
    # Imported here because only jobs with several processes are checked.
    from trainmaster.cli.launch import memory

    if memory.has_request(request, base):
        return
    trainer = composed.trainjob["spec"]["trainer"]
    words = [*trainer["command"], *trainer.get("args", ())]
    # The arguments of a script may differ from run to run.
    words = words[: len(words) - len(program.rest)] if program.script else words[:2]
    estimate = memory.find_learned(home.history, words) or memory.get_usual(program.framework)
    memory.confirm_memory(context, request, estimate, yes=options.yes)


async def _check_environment(
    options: argparse.Namespace,
    context: CommandContext,
    client: HttpClient,
    program: TrainingProgram,
    base: Object,
    home: Home,
) -> None:
    """Checks the script with the Python that will run it, and says what runs instead of a given image."""
    from trainmaster.cli.launch import environments

    info = home.find_running()
    prefix = (info.python if info is not None else "") or sys.prefix
    found = await environments.find_environment(client, base, options.image, prefix)
    if program.script and not options.no_code and found is not None:
        environments.check_syntax(program, found.prefix)
    if options.image and found is not None:
        context.note(f"trainmaster: {found.describe(options.image)}")


def _load_early() -> None:
    """Imports modules that are needed once the server is ready."""
    import yaml  # noqa: F401

    from trainmaster.cli.launch import environments  # noqa: F401
    from trainmaster.cli.view import following  # noqa: F401


def _send(options: argparse.Namespace, program: TrainingProgram, home: Home) -> MountedCode | None:
    if options.no_code:
        return None
    # Imported here because not every run uploads code.
    from trainmaster.cli.launch import code

    return code.send(program.root, home, options.code_limit, program.script)


def _carry(
    options: argparse.Namespace,
    program: TrainingProgram,
    home: Home,
    request: JobRequest,
    base: Object,
    suffix: str = "",
) -> MountedCode | None:
    """The code for a cluster, whose nodes have no bundles."""
    if options.no_code:
        return None
    from trainmaster.cli.launch import code

    programs.check_wrapping(program.rest, base)
    namespace = options.namespace or request.namespace
    return code.carry(program.root, home, request.name, namespace, suffix, options.code_limit, program.script)


async def _show(job: FollowedJob, attachment: Attachment | None) -> int:
    from trainmaster.cli.view import following

    form = job.options.output_format or "text"
    if job.options.detach:
        return following.say_detached(job, form)
    return await following.show(job, form, fresh=True, attachment=attachment)


def _build_attachment(job: FollowedJob, config: ClusterConfig, request: JobRequest, base: Object) -> Attachment:
    # Imported here because few runs have a conversation.
    from trainmaster.cli.view.attaching import Attachment

    trainer = find_trainer(get_template_spec(base))
    name = NODE if trainer is None else trainer["name"]
    return Attachment(job.context, config, job.clock, job.namespace, name, tty=request.tty)


def compile_job(
    request: JobRequest, program: TrainingProgram, options: argparse.Namespace, base: Object, code: MountedCode | None
) -> ComposedJob:
    if not list_jobs(get_template_spec(base)):
        raise RunOptionError(f"the runtime {base['metadata']['name']} has no jobs, so nothing would run your program")
    policy = get_ml_policy(base)
    command = tuple(program.rest)
    if program.script:
        command = programs.build_command(program.script, program.rest, program.framework, policy)
    programs.check_processes(request.processes, command, base["metadata"]["name"], policy)
    namespace = options.namespace or request.namespace
    return compose(replace(request, command=command, namespace=namespace, code=code), base, SHAPE)


def find_runtime_name(options: argparse.Namespace, program: TrainingProgram) -> str:
    return options.runtime or programs.choose_runtime(program.framework)
