"""A real server whose processes are killed at random moments while jobs are submitted and run, and the judgement.

`Chaos.run` kills the server, its zygote, its warm zygotes and shims, and checks after each kill what must always hold
(`chaos_checks`). Now and then it lets all jobs end, so that it sees a job that only another restart would have saved.
It leaves a running server. `Chaos.settle` waits until every job is over and judges it; `Chaos.clear` deletes
everything. An acknowledged create is taken at its word: the job must exist, and end as it must.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from tests.crash.chaos_checks import (
    assert_sound,
    count_descriptors,
    find_named,
    find_processes,
    list_groups,
    list_programs,
    list_surplus,
)
from tests.crash.chaos_environment import build_image_rules, make_environment
from tests.crash.chaos_jobs import GRANDCHILD, Job, build_job, build_runtime, is_over
from tests.support.server import clean_environ, command
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, CONFIG_MAPS, EVENTS, JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.api.status import AlreadyExists, NotFound, StatusError
from trainmaster.client.contract import Client, DeleteOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import ConfigError, load_kubeconfig
from trainmaster.shim.processes import is_alive, kill_quietly
from trainmaster.shim.protocol import ProcessIdentity
from trainmaster.shim.sandbox.cgroups import remove_group

LIMIT = 180.0
PAUSE_AFTER = 50
"""Kills after which all jobs must end before there are more."""
COUNTED = ("server", "zygote", "warm zygote", "shim")
"""What `run` counts; ranks and grandchildren are killed besides."""
_Answer = TypeVar("_Answer")


class Chaos:
    def __init__(self, root: Path, level: str, seed: str) -> None:
        self.home = root / "home"
        self.ledger = root / "ledger"
        self.mark = f"chaos-{os.getpid()}-{level}"
        self.kills = Counter[str]()
        self.warm_starts = 0
        self._level = level
        self._rng = random.Random(seed)
        self.jobs: list[Job] = []
        self._server: asyncio.subprocess.Process | None = None
        self._environment = root / "environment"
        self._at_rest = Counter[str]()
        """Open descriptors of a server that has had nothing to do yet."""
        self.ledger.mkdir()
        self.home.mkdir()
        make_environment(self._environment)

    @property
    def count(self) -> int:
        return sum(self.kills[name] for name in COUNTED)

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

    async def _kill_some(self) -> None:
        """The server, the zygote, both in either order, or a warm zygote; nothing if there is no such process now."""
        assert self._server is not None
        server = [("server", self._server.pid)]
        zygote = [("zygote", pid) for pid in find_named(self.home, "tm-zygote")[:1]]
        warm = [("warm zygote", pid) for pid in find_named(self.home, "tm-warm")]
        choices = (server, server + zygote, zygote + server, zygote, self._rng.sample(warm, min(1, len(warm))))
        victims = self._rng.choices(choices, (30, 5, 5, 20, 40))[0]
        for what, pid in victims:
            if kill_quietly(pid, signal.SIGKILL):
                self.kills[what] += 1
        if server[0] in victims:
            code = await self._server.wait()
            assert code == -signal.SIGKILL, f"the server ended by itself with {code}:\n{self.read_log()}"
            await self._start()

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
        self.jobs.append(job)
        if job.victim:
            await self._strike(job)

    async def _strike(self, job: Job) -> None:
        """Kills a part of the Pod once it is there, whether there is a server or not."""
        find = self._find_early if job.victim == "early shim" else self._find_victim
        deadline = time.monotonic() + LIMIT
        while not (pid := find(job)):
            await asyncio.sleep(0.02)
            if self._rng.random() < 0.02 and await self._insist(job.read_is_over):
                assert job.victim == "early shim", f"{job.name} ended by itself"
                return
            assert time.monotonic() < deadline, f"there is no {job.victim} of {job.name} to kill"
        if kill_quietly(pid, signal.SIGKILL):
            self.kills[job.victim.split()[-1]] += 1

    def _find_early(self, job: Job) -> int:
        """A shim of the job at a random time after it was forked; 0: not yet."""
        for path in self.home.glob("pods/*/pod.json"):
            try:
                name = json.loads(path.read_bytes())["name"]
                shim = ProcessIdentity(**json.loads((path.parent / "shim.json").read_bytes()))
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if f"{name}-".startswith(f"{job.name}-") and is_alive(shim) and self._rng.random() < 0.1:
                return shim.pid
        return 0

    def _find_victim(self, job: Job) -> int:
        """As the machine numbers it; 0: not there yet, the start not recorded, or the child forked and not executed."""
        path, victim = self.ledger / job.name, job.victim
        text = path.read_text() if path.exists() else ""
        if not text.endswith("\n"):
            return 0
        token = text.split()[0]
        directory = self.home / "pods" / token.partition("/")[0]
        if victim == "shim":
            return self._read_pid(directory / "shim.json")
        if victim == "rank":
            return self._read_pid(directory / "run" / "main.0.started.json")
        mine = f"TRAINMASTER_CONTAINER_ID={token}".encode()
        found = find_processes(lambda words, environ: words[:2] == GRANDCHILD.encode().split() and mine in environ)
        return found[0] if found else 0

    async def run(self, kills: int) -> None:
        """Until so many of COUNTED were killed; two jobs are submitted for each."""
        await self._start()
        await self._insist(self._install)
        assert self._server is not None
        self._at_rest = count_descriptors(self._server.pid)
        began, shown, paused = time.monotonic(), 0, 0
        async with asyncio.TaskGroup() as group:
            load = group.create_task(self._load(2 * kills))
            while self.count < kills:
                if self._rng.random() < 0.7:
                    await self._wait_until_ready()
                await asyncio.sleep(self._rng.uniform(0.0, 1.0))
                await self._kill_some()
                await asyncio.to_thread(assert_sound, self.home, self.ledger, self.mark)
                if self.count >= shown + 20:
                    shown = self.count
                    print(f"{time.monotonic() - began:6.0f} s: {dict(self.kills)}, {len(self.jobs)} jobs", flush=True)
                if self.count >= paused + PAUSE_AFTER:
                    paused = self.count
                    await self._wait_until_over()
            await load

    async def _install(self, client: Client) -> None:
        for gvr, body, namespace in (
            (CLUSTER_TRAINING_RUNTIMES, build_runtime(self.ledger, self.mark), ""),
            (CONFIG_MAPS, build_image_rules(self._environment), "kubeflow-system"),
        ):
            with contextlib.suppress(AlreadyExists):
                await client.create(gvr, body, namespace)

    async def _load(self, jobs: int) -> None:
        pace = asyncio.Semaphore(8)

        async def one(number: int) -> None:
            async with pace:
                await self._submit(build_job(number, self.ledger, self.mark))

        async with asyncio.TaskGroup() as group:
            for number in range(jobs):
                group.create_task(one(number))
                # Two per death, however fast the machine is.
                while self.count * 2 < number - 8:
                    await asyncio.sleep(0.05)

    # Judgement

    async def settle(self) -> None:
        await self._wait_until_over()
        async with self._connect() as client:
            for job in self.jobs:
                job.judge(await job.read(client))
            events = (await client.list(EVENTS, "default")).items
            self.warm_starts = sum("started warm" in event["message"] for event in events)
        for job in self.jobs:
            for name, (least, most) in job.ledgers.items():
                path = self.ledger / name
                lines = path.read_text().split() if path.exists() else []
                assert least <= len(lines) <= most, f"{name} has {lines}, not {least} to {most} attempts"
        await asyncio.to_thread(assert_sound, self.home, self.ledger, self.mark)
        await self._wait_until_gone(lambda: [*list_programs(self.mark)], "processes of jobs that are over")
        await self._wait_until_gone(lambda: list_surplus(self.home), "shims of jobs that are over, or warm zygotes")

    async def _wait_until_over(self) -> None:
        deadline = time.monotonic() + LIMIT
        while left := await self._list_unfinished():
            assert time.monotonic() < deadline, f"these jobs do not end: {left}"
            await asyncio.sleep(0.2)

    async def _wait_until_gone(self, find: Callable[[], Sequence[object]], what: str) -> None:
        deadline = time.monotonic() + LIMIT
        while left := find():
            assert time.monotonic() < deadline, f"{what}: {left}"
            await asyncio.sleep(0.1)

    async def _list_unfinished(self) -> list[str]:
        jobs = [*self.jobs]  # what is acknowledged from now on may not be in the lists yet

        async def ask(client: Client) -> list[str]:
            found = {}
            for gvr in (PODS, TRAIN_JOBS):
                found.update({obj["metadata"]["name"]: obj for obj in (await client.list(gvr, "default")).items})
            assert not (lost := [job.name for job in jobs if job.name not in found]), f"lost: {lost}"
            return [job.name for job in jobs if not is_over(found[job.name])]

        return await self._insist(ask)

    async def clear(self) -> None:
        """Deletes all; the server is stopped when nothing of them is left in its home."""
        for job in self.jobs:

            async def delete(client: Client, job: Job = job) -> None:
                await client.delete(job.gvr, job.name, "default", DeleteOptions(propagation="Background"))

            await self._insist(delete)
        await self._wait_until_gone(self.list_leftovers, "directories of Pods")
        async with asyncio.timeout(LIMIT):
            while await self._insist(self._list_objects):
                await asyncio.sleep(0.1)
        assert self._server is not None
        await self._wait_until_gone(self._list_leaked, "descriptors of the server")
        self._server.send_signal(signal.SIGTERM)
        assert await self._server.wait() == 0, self.read_log()

    def _list_leaked(self) -> list[tuple[str, int]]:
        """Descriptors beyond those at rest, kind by kind. The server has a link to each warm zygote."""
        assert self._server is not None
        links = Counter(socket=len(find_named(self.home, "tm-warm")))
        return [*(count_descriptors(self._server.pid) - self._at_rest - links).items()]

    async def _list_objects(self, client: Client) -> list[str]:
        return [
            f"{gvr.plural} {obj['metadata']['name']}"
            for gvr in (PODS, JOBS, JOB_SETS, TRAIN_JOBS)
            for obj in (await client.list(gvr, "default")).items
        ]

    def list_leftovers(self) -> list[str]:
        """Files of Pods that no longer exist, and sockets of warm zygotes that belonged to earlier zygotes."""
        pods = [path.name for path in (self.home / "pods").iterdir() if not path.name.startswith(".")]
        gangs = [path.name for path in (self.home / "gangs").iterdir()] if (self.home / "gangs").exists() else []
        sockets = [path.name for path in (self.home / "pods" / ".zygote").glob("warm-*.sock")]
        return pods + gangs + (sockets if len(sockets) > 1 else [])

    async def abort(self) -> None:
        """After a failure: nothing of this run may go on running, nor be found by the next run at the same path."""
        if self._server is not None and self._server.returncode is None:
            self._server.kill()
            await self._server.wait()
        home, mark = os.fsencode(self.home), f"CHAOS_MARK={self.mark}".encode()
        for pid in find_processes(lambda words, environ: mark in environ or any(home in word for word in words)):
            kill_quietly(pid, signal.SIGKILL)
        for path, _ in list_groups(self.home):
            remove_group(path)
