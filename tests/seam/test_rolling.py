"""An upgrade and a downgrade of the operator while jobs run: one version takes over from the other, jobs end as without
it, and nothing is made twice.

The other version is the last release, if this checkout has its tag, else an earlier commit; outside a checkout it is
this code with another version number.
"""

from __future__ import annotations

import asyncio
import io
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.flow.stage import Stage, is_finished, make_trainjob
from tests.kube.cluster import KubeCluster
from tests.seam.made import check_one_jobset_each
from tests.seam.sameness import list_differences
from tests.seam.stage import KwokNode, open_site
from tests.seam.test_clocks import is_gone
from tests.seam.test_failover import describe_settled
from tests.seam.test_namespace_deleted import is_active
from tests.support.server import clean_environ
from trainmaster.api.meta import Object
from trainmaster.api.resources import LEASES, TRAIN_JOBS
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.scopes import Scope
from trainmaster.version import __version__

pytestmark = [pytest.mark.kube, pytest.mark.timeout(240)]

REPOSITORY = Path(__file__).parents[2]
_BACK = 100
"""So many commits ago, where there was no release yet."""
_LEASE = "trainmaster-operator"
_OTHER = "0.0.9"


def git(*arguments: str) -> bytes:
    """What it prints; empty if this is not a checkout, or has no such commit."""
    try:
        done = subprocess.run(["git", "-C", str(REPOSITORY), *arguments], capture_output=True)
    except FileNotFoundError:
        return b""
    return done.stdout if done.returncode == 0 else b""


@pytest.fixture(scope="module")
def other_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the code."""
    folder = tmp_path_factory.mktemp("other")
    released = git("describe", "--tags", "--abbrev=0", "--match", "v*").decode().strip()
    archive = git("archive", released or f"HEAD~{_BACK}", "trainmaster")
    if archive:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
    else:
        shutil.copytree(REPOSITORY / "trainmaster", folder / "trainmaster")
    file = folder / "trainmaster" / "version.py"
    lines = [
        f'__version__ = "{_OTHER}"' if line[:11] == "__version__" else line for line in file.read_text().split("\n")
    ]
    file.write_text("\n".join(lines))
    return folder


@contextmanager
def operating(code: Path, cluster: KubeCluster, namespace: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "trainmaster", "operator", "--kubeconfig", str(cluster.kubeconfig)]
    command += ["--namespace", namespace, "--lease-namespace", namespace]
    with log.open("wb") as output:
        # Code in the working directory goes before what is installed.
        process = subprocess.Popen(command, cwd=code, stdout=output, stderr=output, env=clean_environ({}))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Rollout:
    """One operator after the other, as a Deployment does it: the next one starts before the last one is told to end."""

    def __init__(self, stage: Stage, cluster: KubeCluster, logs: Path, stack: ExitStack) -> None:
        self._stage = stage
        self._cluster = cluster
        self._logs = logs
        self._stack = stack
        self._running: subprocess.Popen[bytes] | None = None
        self._count = 0

    async def replace(self, code: Path) -> None:
        """Returns when the new one leads."""
        before = await self._read_holder()
        self._count += 1
        log = self._logs / f"{self._stage.namespace}-{self._count}.log"
        last = self._running
        self._running = self._stack.enter_context(operating(code, self._cluster, self._stage.namespace, log))
        if last is not None:
            await self._stage.eventually(lambda: _contains(log, "another process leads"))
            last.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(last.wait, 30) == 0

        async def is_leading() -> bool:
            return await self._read_holder() not in ("", before)

        try:
            await self._stage.eventually(is_leading)
        except AssertionError:
            raise AssertionError(log.read_text()[-3000:]) from None

    async def _read_holder(self) -> str:
        leases = await self._stage.list_all(LEASES)
        return "".join(one["spec"].get("holderIdentity") or "" for one in leases if one["metadata"]["name"] == _LEASE)


async def _contains(log: Path, text: str) -> bool:
    return text in log.read_text()


@asynccontextmanager
async def rolling(cluster: KubeCluster, logs: Path) -> AsyncIterator[tuple[Stage, Rollout, asyncio.Event]]:
    over = asyncio.Event()

    def play(pod: Object, run: int) -> int:
        is_held = pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == "first"
        return -1 if is_held and not over.is_set() else 0

    async with open_site(cluster) as site, Scope("rolling") as scope:
        node = KwokNode(play, namespace=site.namespace)
        work = scope.spawn(node.run(site.client, SystemClock()), name="rolling.node")
        stage = Stage(site.client, site.namespace, node, site.come_to_rest)

        async def restart_node() -> None:
            # Pods that ran meanwhile are news to another one.
            await over.wait()
            work.cancel()
            await node.run(site.client, SystemClock())

        scope.spawn(restart_node(), name="rolling.restart")
        with ExitStack() as stack:
            yield stage, Rollout(stage, cluster, logs, stack), over
        check_one_jobset_each(cluster, site.namespace)


async def play_versions(cluster: KubeCluster, logs: Path, versions: list[Path]) -> dict[str, Object]:
    """How jobs ended that one version after the other ran: one runs all the time, one is suspended under the first
    version and resumed under the last, one ends and is deleted under each."""
    async with rolling(cluster, logs) as (stage, rollout, over):
        for number, code in enumerate(versions):
            await rollout.replace(code)
            if number == 0:
                await stage.submit(make_trainjob(name="first"))
                await stage.wait_for(TRAIN_JOBS, "first", is_active)
                await stage.submit(make_trainjob(name="later", nodes=1, suspend=True))
            brief = f"brief-{number}"
            await stage.submit(make_trainjob(name=brief, nodes=1, ttlSecondsAfterFinished=1))
            await stage.eventually(lambda brief=brief: is_gone(stage, brief))  # type: ignore[misc]
        over.set()
        await stage.edit(TRAIN_JOBS, "later", {"spec": {"suspend": False}})
        for name in ("first", "later"):
            await stage.wait_for(TRAIN_JOBS, name, is_finished)
        agents = {event["userAgent"] for event in cluster.read_audit(stage.namespace)}
        names = {__version__ if code == REPOSITORY else _OTHER for code in versions}
        assert {f"trainmaster-operator/{name}" for name in names} <= agents
        return await describe_settled(stage)


def test_jobs_run_on_through_an_upgrade_and_a_downgrade(
    seam_cluster: KubeCluster, tmp_path: Path, other_version: Path
) -> None:
    async def main() -> tuple[dict[str, Object], dict[str, Object]]:
        plain = play_versions(seam_cluster, tmp_path, [REPOSITORY])
        changed = play_versions(seam_cluster, tmp_path, [REPOSITORY, other_version, REPOSITORY])
        return await asyncio.gather(plain, changed)

    peace, found = asyncio.run(main())
    assert list_differences(peace, found) == []
