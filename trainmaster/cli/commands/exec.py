"""Run a program in the container of a rank: `trainmaster exec JOB [--rank N] [-it] -- CMD ...`.

The program has the container's files, variables and limits. With -i it reads standard input, with -t it gets a
terminal that is resized with yours (`-it` for a shell). Ctrl-C goes to the program.

Exit codes: the program's own; if no program ran, 1 to 7 of this command with an error message.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS
from trainmaster.api.training.steps import NODE
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import get_job
from trainmaster.cli.servers.connection import add_server, call, get_server
from trainmaster.cli.servers.flags import add_kind, apply_kind, read_job
from trainmaster.cli.view import conversation
from trainmaster.client.contract import Client, ListOptions
from trainmaster.client.pod_exec import ExecOptions, ExecSession, open_exec
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.scopes import Scope


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "trainmaster exec JOB [--rank N] [-it] [options] -- COMMAND [ARG ...]"
    _add_options(parser)
    parser.add_argument("job", type=read_job, metavar="JOB", help="the TrainJob, or KIND/NAME")
    # Everything after the name, because argparse cannot tell our options from those of the command.
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command to run, after --")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rank", type=int, default=argparse.SUPPRESS, metavar="N", help="rank of the node (default 0)")
    parser.add_argument(
        "--job-name",
        default=argparse.SUPPRESS,
        metavar="NAME",
        help="replicated job of the runtime, or replica type: worker",
    )
    parser.add_argument(
        "-c", "--container", default=argparse.SUPPRESS, metavar="NAME", help="container (default: the trainer's)"
    )
    parser.add_argument("-i", "--stdin", action="store_true", default=argparse.SUPPRESS, help="pass standard input")
    parser.add_argument("-t", "--tty", action="store_true", default=argparse.SUPPRESS, help="allocate a terminal")
    add_kind(parser)
    add_server(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    command = _split(options)
    rank, job = getattr(options, "rank", None), getattr(options, "job_name", "")
    if not options.job:
        raise exits.Failure("the name of the TrainJob is empty: `trainmaster list` shows them", exits.USAGE)
    if rank is not None and rank < 0:
        raise exits.Failure("--rank must be 0 or more", exits.USAGE)
    stdin, wants_tty = getattr(options, "stdin", False), getattr(options, "tty", False)
    on_terminal = wants_tty and stdin and context.stdin.isatty()
    if wants_tty and not on_terminal:
        context.note("no terminal: standard input is none, or -i is missing")
    config = get_server(context, options)

    async def work(client: Client) -> int:
        pod = await get_pod(client, options.namespace, options.job, rank, job)
        name = choose_container(pod, getattr(options, "container", ""))
        wanted = ExecOptions(command, name, stdin=stdin, tty=on_terminal)
        async with open_exec(config, options.namespace, pod["metadata"]["name"], wanted) as session:
            return await _converse(session, context, wanted)

    return call(context, options, work)


def _split(options: argparse.Namespace) -> list[str]:
    """The command after `--`. Options between the job name and `--` are parsed as if they came before the name."""
    rest: list[str] = options.rest
    if rest and not rest[0].startswith("-"):
        head, command = [], rest  # argparse has consumed a -- directly after the name
    elif "--" in rest:
        place = rest.index("--")
        head, command = rest[:place], rest[place + 1 :]
    else:
        head, command = rest, []
    if head:
        parser = argparse.ArgumentParser(
            prog="trainmaster exec", add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS
        )
        _add_options(parser)
        given = parser.parse_args(head)
        for name, value in vars(given).items():
            if value not in (None, "", False):
                setattr(options, name, value)
        apply_kind(options)
    if not command:
        text = f"say what to run behind --: `trainmaster exec {options.job} -it -- bash`"
        raise exits.Failure(text, exits.USAGE)
    return command


async def get_pod(client: Client, namespace: str, name: str, rank: int | None, job: str = "") -> Object:
    """The running Pod of the rank in the newest attempt. If there is none, the Failure lists what exists."""
    found = await get_job(client, namespace, name)
    listed = await client.list(PODS, namespace, ListOptions(label_selector=f"{found.pod_label}={found.name}"))
    places = [(place, pod) for pod in listed.items if (place := found.find_place(pod)) is not None]
    running = [(place, pod) for place, pod in places if Pod(pod).is_running]
    if found.has_jobset:
        newest = max((place.attempt for place, _ in running), default=0)
        running = [(place, pod) for place, pod in running if place.attempt == newest]
    # A PyTorchJob has one master, so rank 2 can only be a worker.
    jobs = {place.job for place, _ in running if place.index == (rank or 0)}
    wanted_job = job or found.choose_main_step(jobs or {place.job for place, _ in running})
    for place, pod in running:
        if place.job == wanted_job and place.index == (rank or 0):
            return pod
    there = ", ".join(sorted(f"{place.job}-{place.index}" for place, _ in running)) or "none"
    text = f"no Pod of rank {rank or 0}{f' of {wanted_job}' if wanted_job else ''} runs (running: {there})"
    raise exits.Failure(f"{text}: `trainmaster explain {found.label} -n {namespace}` says why", exits.NOT_FOUND)


def choose_container(pod: Object, wanted: str = "") -> str:
    """The wanted container, otherwise the trainer's. If there is none, the Failure lists what exists."""
    names: Sequence[str] = [container["name"] for container in pod["spec"]["containers"]]
    if wanted and wanted not in names:
        text = f"Pod {pod['metadata']['name']} has no container {wanted}: it has {', '.join(names)}"
        raise exits.Failure(text, exits.NOT_FOUND)
    return wanted or (NODE if NODE in names else names[0])


async def _converse(session: ExecSession, context: CommandContext, wanted: ExecOptions) -> int:
    async with AsyncExitStack() as stack:
        scope = await stack.enter_async_context(Scope("exec"))
        if wanted.tty:
            stack.enter_context(conversation.raw_terminal(context))
            stack.enter_context(conversation.following_size(session))
        if wanted.stdin:
            pieces = await stack.enter_async_context(conversation.reading(context))
            scope.spawn(_pump(session, pieces), name="exec.stdin")
        async for channel, data in session.outputs():
            conversation.show_output(context, channel, data)
    assert session.code is not None, "outputs end with it"
    return session.code


async def _pump(session: ExecSession, pieces: asyncio.Queue[bytes]) -> None:
    while data := await pieces.get():
        await session.write(data)
    session.close_input()
