"""Run a program in the container of a rank: `trainmaster exec JOB [--rank N] [-it] -- CMD ...`.

The program has the container's files, variables and limits. With -i it reads standard input, with -t it gets a
terminal that is resized with yours (`-it` for a shell). Ctrl-C goes to the program.

Exit codes: the program's own; if no program ran, 1 to 7 of this command with an error message.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS
from trainmaster.api.training.steps import NODE
from trainmaster.cli import exits, streams
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import get_job
from trainmaster.cli.servers.connection import add_server, call, get_server
from trainmaster.cli.servers.flags import read_job
from trainmaster.client.contract import Client, ListOptions
from trainmaster.client.pod_exec import STDERR, ExecOptions, ExecSession, open_exec
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.scopes import Scope

_PIECE = 64 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "trainmaster exec JOB [--rank N] [-it] [options] -- COMMAND [ARG ...]"
    _add_options(parser)
    parser.add_argument("job", type=read_job, metavar="JOB", help="the TrainJob")
    # Everything after the name, because argparse cannot tell our options from those of the command.
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command to run, after --")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rank", type=int, default=argparse.SUPPRESS, metavar="N", help="rank of the node (default 0)")
    parser.add_argument("--job-name", default=argparse.SUPPRESS, metavar="NAME", help="replicated job of the runtime")
    parser.add_argument(
        "-c", "--container", default=argparse.SUPPRESS, metavar="NAME", help="container (default: the trainer's)"
    )
    parser.add_argument("-i", "--stdin", action="store_true", default=argparse.SUPPRESS, help="pass standard input")
    parser.add_argument("-t", "--tty", action="store_true", default=argparse.SUPPRESS, help="allocate a terminal")
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
    if not command:
        text = f"say what to run behind --: `trainmaster exec {options.job} -it -- bash`"
        raise exits.Failure(text, exits.USAGE)
    return command


async def get_pod(client: Client, namespace: str, name: str, rank: int | None, job: str = "") -> Object:
    """The running Pod of the rank in the newest attempt. If there is none, the Failure lists what exists."""
    found = await get_job(client, namespace, name)
    listed = await client.list(PODS, namespace, ListOptions(label_selector=f"{found.pod_label}={name}"))
    places = [(place, pod) for pod in listed.items if (place := found.find_place(pod)) is not None]
    running = [(place, pod) for place, pod in places if Pod(pod).is_running]
    newest = max((place.attempt for place, _ in running), default=0)
    running = [(place, pod) for place, pod in running if place.attempt == newest]
    jobs = {place.job for place, _ in running}
    wanted_job = job or (NODE if NODE in jobs else min(jobs, default=""))
    for place, pod in running:
        if place.job == wanted_job and place.index == (rank or 0):
            return pod
    there = ", ".join(sorted(f"{place.job}-{place.index}" for place, _ in running)) or "none"
    text = f"no Pod of rank {rank or 0}{f' of {wanted_job}' if wanted_job else ''} runs (running: {there})"
    raise exits.Failure(f"{text}: `trainmaster explain {name} -n {namespace}` says why", exits.NOT_FOUND)


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
            stack.enter_context(_raw(context))
            stack.enter_context(_following_size(session))
        if wanted.stdin:
            pieces = await stack.enter_async_context(_reading(context))
            scope.spawn(_pump(session, pieces), name="exec.stdin")
        async for channel, data in session.outputs():
            _show(context, channel, data)
    assert session.code is not None, "outputs end with it"
    return session.code


async def _pump(session: ExecSession, pieces: asyncio.Queue[bytes]) -> None:
    while data := await pieces.get():
        await session.write(data)
    session.close_input()


@asynccontextmanager
async def _reading(context: CommandContext) -> AsyncIterator[asyncio.Queue[bytes]]:
    """A queue of data from standard input; b"" is the end. Regular files are read in a thread."""
    pieces: asyncio.Queue[bytes] = asyncio.Queue(maxsize=4)
    loop = asyncio.get_running_loop()
    descriptor = context.stdin.fileno()

    async def read() -> None:
        while True:
            data = await loop.run_in_executor(None, os.read, descriptor, _PIECE)
            await pieces.put(data)
            if not data:
                return

    async def watch() -> None:
        while True:
            ready = asyncio.Event()
            loop.add_reader(descriptor, ready.set)
            try:
                await ready.wait()
            finally:
                # Before reading: otherwise the reader fires again, and the next read blocks the event loop.
                loop.remove_reader(descriptor)
            data = os.read(descriptor, _PIECE)
            await pieces.put(data)
            if not data:
                return

    async with Scope("exec.input") as scope:
        try:
            loop.add_reader(descriptor, lambda: None)
            loop.remove_reader(descriptor)
            scope.spawn(watch(), name="exec.read")
        except PermissionError:  # epoll does not support regular files
            scope.spawn(read(), name="exec.read")
        yield pieces


def _show(context: CommandContext, channel: int, data: bytes) -> None:
    stream = context.err if channel == STDERR else context.out
    try:
        stream.flush()
        view = memoryview(data)
        while view:
            view = view[os.write(stream.fileno(), view) :]
    except OSError as error:
        if not streams.is_gone(error):
            raise
        streams.discard(stream)
        if stream is context.out:  # nobody reads the output, as with `| head`: end the program
            raise BrokenPipeError(error.errno, error.strerror) from None


@contextmanager
def _raw(context: CommandContext) -> Iterator[None]:
    """Puts the terminal in raw mode, so that every key goes to the program, and restores it afterwards."""
    descriptor = context.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _following_size(session: ExecSession) -> Iterator[None]:
    def tell() -> None:
        try:
            size = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
        except OSError:
            return
        session.resize(size.columns, size.lines)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, tell)
    try:
        tell()
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
