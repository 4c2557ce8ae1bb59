"""A real server that is killed at random moments while jobs are submitted and run, and the judgement afterwards.

`Chaos.run` kills, and starts the server a last time; `Chaos.settle` waits until every job is over and judges it;
`Chaos.clear` deletes everything. An acknowledged create is taken at its word: the job must exist, and end as it must.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from tests.crash.chaos_jobs import GRANDCHILD, Job, build_job, build_runtime, is_over
from tests.support.server import clean_environ, command
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, PODS, TRAIN_JOBS
from trainmaster.api.status import AlreadyExists, NotFound, StatusError
from trainmaster.client.contract import Client, DeleteOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import ConfigError, load_kubeconfig
from trainmaster.shim.processes import kill_quietly

LIMIT = 180.0
_Answer = TypeVar("_Answer")


class Chaos:
    def __init__(self, root: Path, level: str, seed: str) -> None:
        self.home = root / "home"
        self.ledger = root / "ledger"
        self.mark = f"chaos-{os.getpid()}-{level}"
        self.kills = Counter[str]()
        self._level = level
        self._rng = random.Random(seed)
        self._jobs: list[Job] = []
        self._server: asyncio.subprocess.Process | None = None
        self.ledger.mkdir()
        self.home.mkdir()

    @property
    def group_mark(self) -> str:
        """What the control groups of this home begin with."""
        return hashlib.sha256(os.fspath((self.home / "pods").resolve()).encode()).hexdigest()[:8]

    # The server

    async def _start(self) -> asyncio.subprocess.Process:
        flags = ("--home", str(self.home))
        environ = clean_environ({"TRAINMASTER_NODE_ISOLATION": self._level, "CHAOS_MARK": self.mark})
        with (self.home / "chaos.log").open("ab") as log:
            self._server = await asyncio.create_subprocess_exec(
                *command("up", *flags), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=environ
            )
        return self._server

    async def _wait_until_ready(self) -> None:
        async def ask(client: Client) -> None:
            await client.list(PODS, "default")

        await self._insist(ask)

    async def _kill_server(self) -> None:
        assert self._server is not None
        victims = [("server", self._server.pid)]
        zygote = self._read_pid(self.home / "pods" / ".zygote" / "zygote.json")
        if zygote and self._rng.random() < 0.2:
            victims.insert(self._rng.randrange(2), ("zygote", zygote))
        for what, pid in victims:
            if kill_quietly(pid, signal.SIGKILL):
                self.kills[what] += 1
        code = await self._server.wait()
        assert code == -signal.SIGKILL, f"the server ended by itself with {code}:\n{self.read_log()}"

    def read_log(self) -> str:
        return (self.home / "chaos.log").read_text(errors="replace")[-4000:]

    def _read_pid(self, path: Path) -> int:
        try:
            return int(json.loads(path.read_bytes())["pid"])
        except (OSError, ValueError, KeyError):
            return 0

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[Client]:
        client = HttpClient(load_kubeconfig([self.home / "kubeconfig"]))
        try:
            yield client
        finally:
            await client.close()

    async def _insist(self, ask: Callable[[Client], Awaitable[_Answer]]) -> _Answer:
        """Again and again, across as many deaths of the server as it takes."""
        async with asyncio.timeout(LIMIT):
            while True:
                try:
                    async with asyncio.timeout(10), self._connect() as client:
                        return await ask(client)
                except (AlreadyExists, NotFound):
                    raise
                except (StatusError, OSError, TimeoutError, ConfigError):
                    await asyncio.sleep(0.05)

    # Load

    async def _submit(self, job: Job) -> None:
        async def create(client: Client) -> None:
            await client.create(job.gvr, job.body, "default")

        # It may have been stored by a server that died before it could say so.
        with contextlib.suppress(AlreadyExists):
            await self._insist(create)
        self._jobs.append(job)
        if job.victim:
            await self._strike(job)

    async def _strike(self, job: Job) -> None:
        """Kills a part of the Pod once it runs, whether there is a server or not."""
        path = self.ledger / job.name
        async with asyncio.timeout(LIMIT):
            while not path.exists() or not path.read_text().endswith("\n"):
                await asyncio.sleep(0.02)
            token = path.read_text().split()[0]
            # It may not be quite there: the start not recorded, the child forked and not executed.
            while not (pid := self._find_victim(job.victim, token)):
                await asyncio.sleep(0.02)
        assert kill_quietly(pid, signal.SIGKILL), f"there was no {job.victim} of {job.name} to kill"
        self.kills[job.victim] += 1

    def _find_victim(self, victim: str, token: str) -> int:
        """As the machine numbers it; 0: not there yet."""
        directory = self.home / "pods" / token.partition("/")[0]
        if victim == "shim":
            return self._read_pid(directory / "shim.json")
        if victim == "rank":
            return self._read_pid(directory / "run" / "main.0.started.json")
        mine = f"TRAINMASTER_CONTAINER_ID={token}".encode()
        found = find_processes(lambda words, environ: words[:2] == GRANDCHILD.encode().split() and mine in environ)
        return found[0] if found else 0

    async def run(self, kills: int, jobs: int) -> None:
        await self._start()

        async def install(client: Client) -> None:
            await client.create(CLUSTER_TRAINING_RUNTIMES, build_runtime(self.ledger, self.mark))

        await self._insist(install)
        async with asyncio.TaskGroup() as group:
            pace = asyncio.Semaphore(8)
            group.create_task(self._load(jobs, kills, pace))
            for _ in range(kills):
                if self._rng.random() < 0.7:
                    await self._wait_until_ready()
                await asyncio.sleep(self._rng.uniform(0.0, 1.0))
                await self._kill_server()
                await self._start()

    async def _load(self, jobs: int, kills: int, pace: asyncio.Semaphore) -> None:
        async def one(number: int) -> None:
            async with pace:
                await self._submit(build_job(number, self.ledger, self.mark))

        async with asyncio.TaskGroup() as group:
            for number in range(jobs):
                group.create_task(one(number))
                # As many per death as asked for, however fast the machine is.
                while self.kills["server"] * jobs < (number - 8) * kills:
                    await asyncio.sleep(0.05)

    # Judgement

    async def settle(self) -> None:
        async with asyncio.timeout(LIMIT):
            while left := await self._list_unfinished():
                await asyncio.sleep(0.2)
        assert left == []
        async with self._connect() as client:
            for job in self._jobs:
                job.judge(await client.get(job.gvr, job.name, "default"))
        for job in self._jobs:
            for name, (least, most) in job.ledgers.items():
                path = self.ledger / name
                lines = path.read_text().split() if path.exists() else []
                assert len(set(lines)) == len(lines), f"run twice: {name} {lines}"
                assert least <= len(lines) <= most, f"{name} has {lines}, not {least} to {most} attempts"

    async def _list_unfinished(self) -> list[str]:
        async def ask(client: Client) -> list[str]:
            found = {}
            for gvr in (PODS, TRAIN_JOBS):
                found.update({obj["metadata"]["name"]: obj for obj in (await client.list(gvr, "default")).items})
            return [job.name for job in self._jobs if not is_over(found[job.name])]

        return await self._insist(ask)

    async def clear(self) -> None:
        """Deletes all; the server is stopped when nothing of them is left in its home."""
        for job in self._jobs:

            async def delete(client: Client, job: Job = job) -> None:
                await client.delete(job.gvr, job.name, "default", DeleteOptions(propagation="Background"))

            await self._insist(delete)
        async with asyncio.timeout(LIMIT):
            while self.list_leftovers():
                await asyncio.sleep(0.1)
        assert self._server is not None
        self._server.send_signal(signal.SIGTERM)
        assert await self._server.wait() == 0, self.read_log()

    def list_leftovers(self) -> list[str]:
        """Files of Pods that no longer exist."""
        pods = [path.name for path in (self.home / "pods").iterdir() if not path.name.startswith(".")]
        gangs = [path.name for path in (self.home / "gangs").iterdir()] if (self.home / "gangs").exists() else []
        return pods + gangs

    async def abort(self) -> None:
        """After a failure: nothing of this run may go on running."""
        if self._server is None or self._server.returncode is not None:
            return
        self._server.kill()
        await self._server.wait()
        home, mark = os.fsencode(self.home), f"CHAOS_MARK={self.mark}".encode()
        for pid in find_processes(lambda words, environ: mark in environ or any(home in word for word in words)):
            kill_quietly(pid, signal.SIGKILL)


def find_processes(wanted: Callable[[list[bytes], list[bytes]], bool]) -> list[int]:
    """Asked with the words of the command line and of the environment."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            environ = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted(words, environ):
            found.append(int(name))
    return found
