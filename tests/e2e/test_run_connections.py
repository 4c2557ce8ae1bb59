"""How many connections `run` opens, counted between it and the server, and what it shows after they were cut."""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.seam.proxy import Proxy
from tests.support.server import ServerProcess, clean_environ, command, start_server

pytestmark = pytest.mark.e2e

MOST = 3
COUNT = """
import os, sys, time
rank = os.environ["PET_NODE_RANK"]
for step in range(1, 61):
    print(f"step {step} of rank {rank}", flush=True)
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("connections") / "home") as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "count.py").write_text(COUNT)
    return tmp_path


async def run_through(proxy: Proxy, server: ServerProcess, project: Path, ranks: int, *, cut_at: str = "") -> list[str]:
    """The lines of a run whose connections go through the proxy, and are cut once when this line was shown."""
    arguments = ["run", "--nodes", str(ranks), "--cpu", "10m", "count.py"]
    port = urlsplit(server.url).port
    text = server.kubeconfig.read_text()
    try:
        server.kubeconfig.write_text(text.replace(f":{port}", f":{proxy.port}"))
        process = await asyncio.create_subprocess_exec(
            *command(*arguments),
            env=clean_environ({"TRAINMASTER_HOME": str(server.home)}),
            cwd=project,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
        )
        assert process.stdout is not None and process.stderr is not None
        lines: list[str] = []
        while line := (await process.stdout.readline()).decode().rstrip("\n"):
            lines.append(line)
            if cut_at and line.endswith(cut_at):
                proxy.cut()
        assert await process.wait() == os.EX_OK, (await process.stderr.read()).decode()
    finally:
        server.kubeconfig.write_text(text)
    return lines


def check_lines(lines: list[str], ranks: int) -> None:
    """Every line of every rank is there, once and in order."""
    for rank in range(ranks):
        shown = [int(found[1]) for line in lines if (found := re.search(rf"step (\d+) of rank {rank}$", line))]
        assert shown == list(range(1, 61)), f"rank {rank}"


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_a_run_opens_no_more_connections_for_more_ranks(server: ServerProcess, project: Path, ranks: int) -> None:
    async def main() -> None:
        proxy = Proxy(urlsplit(server.url).port or 0)
        async with proxy.running():
            check_lines(await run_through(proxy, server, project, ranks), ranks)
        assert 1 <= proxy.accepted <= MOST

    asyncio.run(main())


def test_a_run_whose_connection_is_cut_shows_every_line_once(server: ServerProcess, project: Path) -> None:
    async def main() -> None:
        proxy = Proxy(urlsplit(server.url).port or 0)
        async with proxy.running():
            check_lines(await run_through(proxy, server, project, 2, cut_at="step 20 of rank 1"), 2)
        assert proxy.cuts == 1
        assert 2 <= proxy.accepted <= MOST

    asyncio.run(main())
