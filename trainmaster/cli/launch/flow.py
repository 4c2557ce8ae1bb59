"""A run from its wish to its end: the runtime, the code, the submit, the view. All that needs a client is loaded here.

`cli.run` reads the command line and begins to start a server before it loads this module, so that both load at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError
from trainmaster.app.home import Home
from trainmaster.cli import exits
from trainmaster.cli.commands.run import TrainingProgram, compile_job, find_runtime_name
from trainmaster.cli.context import CommandContext
from trainmaster.cli.launch import submission
from trainmaster.cli.launch.manifests import Code, list_local
from trainmaster.cli.launch.servers import StartingServer, explain_ended
from trainmaster.cli.launch.wishes import RunRequest, WishError
from trainmaster.cli.server import explain
from trainmaster.client.http import HttpClient
from trainmaster.kit.clock import Clock, SystemClock


def print_manifests(
    options: argparse.Namespace, context: CommandContext, program: TrainingProgram, wish: RunRequest
) -> int:
    """Starts nothing. The runtime is that of a running server, else the shipped one; the code is packed, so that
    what is printed can be submitted with kubectl."""
    base = asyncio.run(submission.find_runtime_anyhow(context, options, find_runtime_name(options, program)))
    code = _send(options, program, context.home(options))
    manifests = compile_job(wish, program, options, base, code)
    if options.output_format == "json":
        context.say(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests.objects)}, indent=2))
        return exits.OK
    import yaml

    for text in list_local(manifests):
        context.say(f"# {text}")
    for obj in manifests.objects:
        context.say("---")
        context.say(yaml.safe_dump(obj, sort_keys=False, allow_unicode=True).rstrip())
    return exits.OK


def run_job(
    options: argparse.Namespace,
    context: CommandContext,
    program: TrainingProgram,
    wish: RunRequest,
    server: StartingServer,
) -> int:
    return asyncio.run(_run(options, context, program, wish, server))


async def _run(
    options: argparse.Namespace,
    context: CommandContext,
    program: TrainingProgram,
    wish: RunRequest,
    server: StartingServer,
) -> int:
    clock = SystemClock()
    if server.home is None and not options.no_code:
        raise WishError("code can be sent to the server of this machine only: add --no-code, and --image with the code")
    # While a server starts, the code is packed, and what is needed later is loaded.
    code = None if server.home is None else _send(options, program, server.home)
    if server.is_starting:
        context.note("trainmaster: starting a server; `trainmaster down` stops it")
        _load_early()
    config = await server.find(clock)
    client = HttpClient(config)
    try:
        base = await submission.find_runtime(client, find_runtime_name(options, program), options.namespace)
        manifests = compile_job(wish, program, options, base, code)
        if wish.resources:
            from trainmaster.cli.launch import room

            await room.check_room(client, wish)
        if wish.secrets or wish.secret_variables or wish.mounts:
            from trainmaster.cli.launch import needs

            await needs.check_needs(client, wish, options.namespace)
        trainjob = await submission.submit(client, manifests, clock)
        for text in client.warnings:
            context.note(f"trainmaster: warning: {text}")
        client.warnings.clear()
        return await _show(options, context, client, clock, trainjob, server)
    except StatusError as error:
        text = explain_ended(server.home) or str(explain(error, config, options))
        raise exits.Failure(text, exits.RUN_NO_SERVER) from None
    finally:
        await client.close()


def _load_early() -> None:
    """What is needed once the server is there."""
    import yaml  # noqa: F401

    from trainmaster.cli.view import following  # noqa: F401


def _send(options: argparse.Namespace, program: TrainingProgram, home: Home) -> Code | None:
    if options.no_code:
        return None
    # Not every run sends code.
    from trainmaster.cli.launch import codes

    return codes.send(program.root, home, options.code_limit, program.script)


async def _show(
    options: argparse.Namespace,
    context: CommandContext,
    client: HttpClient,
    clock: Clock,
    trainjob: Object,
    server: StartingServer,
) -> int:
    # Loaded after the job is submitted: it starts meanwhile.
    from trainmaster.cli.view import following

    job = following.FollowedJob(options, context, client, clock, trainjob, server.home)
    form = options.output_format or "text"
    if options.detach:
        return following.say_detached(job, form)
    return await following.show(job, form, fresh=True)
