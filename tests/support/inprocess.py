"""The command line on a control plane in this process: real controllers, a scripted node, no sockets.

    with running_shell(ScriptedNode(seconds=0.01)) as shell:
        assert shell("submit", "-f", str(file)) == 0
        shell.out, shell.err

The plant runs on an event loop in a thread of its own, in real time, because commands bring their own loop.
"""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.flow.plant import ScriptedNode, running_plant
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main
from trainmaster.client.contract import Client

_PATIENCE = 60.0


class TypedInput(io.StringIO):
    def isatty(self) -> bool:
        return True


class Shell:
    """Runs commands and keeps what they print."""

    def __init__(self, home: str, loop: asyncio.AbstractEventLoop, client: Client, node: ScriptedNode) -> None:
        self.environ = {"TRAINMASTER_HOME": home}
        self.node = node
        self.out = self.err = ""
        self._loop, self._client = loop, client

    def __call__(self, *argv: str, stdin: str = "", terminal: bool = False) -> int:
        """`terminal`: a person types `stdin`."""
        out, err = io.StringIO(), io.StringIO()
        source = TypedInput(stdin) if terminal else io.StringIO(stdin)
        code = main(argv, CommandContext(self.environ, out, err, source, self.do))
        self.out, self.err = out.getvalue(), err.getvalue()
        return code

    def do(self, work: Callable[[Client], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with asyncio.timeout(_PATIENCE):
                return await work(self._client)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def must(self, *argv: str, stdin: str = "") -> str:
        code = self(*argv, stdin=stdin)
        assert code == 0, f"trainmaster {' '.join(argv)}: exit {code}\n{self.out}{self.err}"
        return self.out


@contextmanager
def running_shell(home: str, node: ScriptedNode) -> Iterator[Shell]:
    ready = threading.Event()
    shells: list[tuple[Shell, asyncio.Event]] = []

    async def serve() -> None:
        async with running_plant(node) as plant:
            stop = asyncio.Event()
            shells.append((Shell(home, asyncio.get_running_loop(), plant.client, node), stop))
            ready.set()
            await stop.wait()

    with ThreadPoolExecutor(1, "plant") as executor:
        serving = executor.submit(lambda: asyncio.run(serve()))
        serving.add_done_callback(lambda _: ready.set())
        ready.wait()
        try:
            if shells:
                yield shells[0][0]
        finally:
            for shell, stop in shells:
                if not serving.done():
                    shell._loop.call_soon_threadsafe(stop.set)
        serving.result()
