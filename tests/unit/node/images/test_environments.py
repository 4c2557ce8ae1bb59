"""What an installation leaves behind was written by others: nothing of it is followed, shown or trusted."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.unit.node.making import make_pod
from trainmaster.api import tenancy
from trainmaster.api.labels import PACKAGES
from trainmaster.api.resources import NAMESPACES
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.images.catalogue import Images, ImageSettings
from trainmaster.node.images.contract import Check, Environment, Errand, ErrandReport, ImageError
from trainmaster.node.images.environments import Environments, InstallLimits
from trainmaster.node.launch.containers import build_layout
from trainmaster.node.launch.contract import Site
from trainmaster.node.shims.errands import decide_limits
from trainmaster.shim.protocol import FULL, OVERLAY
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


class Hostile:
    """An installation that leaves traps."""

    def __init__(self, secret: Path) -> None:
        self.secret = secret
        self.done: list[Errand] = []
        self.code = 0
        self.output = "no"

    async def run(self, pod: Pod, errand: Errand, check: Check) -> ErrandReport:
        self.done.append(errand)
        env = Path(errand.argv[0]).parent.parent
        (env / "lib" / f"python3.{sys.version_info[1]}" / "site-packages" / "x.pth").write_text(f"{self.secret}\n")
        for path in (env / "bin").iterdir():
            path.unlink()
        (env / "bin").rmdir()
        (env / "bin").symlink_to(self.secret)
        (env / "pyvenv.cfg").write_text(f"home = {self.secret}\n")
        return ErrandReport(self.code, self.output)


class Bench:
    def __init__(self, cluster: Cluster, root: Path) -> None:
        self.cluster, self.root = cluster, root
        self.secret = root / "secret"
        self.secret.mkdir()
        (self.secret / "python3").write_text("#!/bin/sh\n")
        (self.secret / "python3").chmod(0o755)
        self.project = root / "project"
        self.project.mkdir()
        self.errands = Hostile(self.secret)
        made = root / "environments"
        environ = {"HOME": str(root), "PIP_INDEX_URL": "https://u:p4ssw0rd@example.com/simple"}
        environments = Environments(made, environ, cluster.clock, self.errands, InstallLimits())
        self.images = Images(cluster.client, ImageSettings(made, sys.prefix, root / "gangs"), None, environments)

    async def find(self, requirements: str, namespace: str = "default") -> Environment:
        pod = make_pod({"image": "x"})
        pod["metadata"] |= {"annotations": {PACKAGES: requirements}, "namespace": namespace}
        return await self.images.find(Pod(pod), pod["spec"]["containers"][0])


def run(tmp_path: Path, test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await test(Bench(cluster, tmp_path))

    run_virtual(main())


def test_links_and_paths_in_it_lead_the_server_nowhere(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        for _ in range(2):
            image = await bench.find(str(bench.project))
            assert image.made
            assert not any(str(bench.secret) in path for path in (*image.shown, *image.programs, *image.packages))
            sources = [mount.source for mount in build_layout(Site(str(tmp_path), FULL), image).mounts]
            assert not any(os.path.realpath(source).startswith(str(bench.secret)) for source in sources)
            assert image.prefix in sources
            link = Path(image.layer, "bin", "python3").readlink()
            assert str(link) == os.path.realpath(f"{sys.prefix}/bin/python3")
        assert len(bench.errands.done) == 1

    run(tmp_path, test)


def test_an_errand_sees_no_credentials_and_a_project_only_through_a_layer(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        await bench.find(str(bench.project))
        errand = bench.errands.done[0]
        assert "p4ssw0rd" not in repr(errand)
        assert errand.env["PIP_INDEX_URL"] == "https://example.com/simple"
        assert errand.env["PIP_CONFIG_FILE"] == os.devnull
        assert errand.hide == (str(tmp_path),), "where .netrc and pip.conf are"
        assert [mount.kind for mount in errand.mounts if mount.target == str(bench.project)] == [OVERLAY]
        written = [mount.target for mount in errand.mounts if mount.kind != OVERLAY and not mount.read_only]
        assert {Path(path).name for path in written} == {"env", "work"}

    run(tmp_path, test)


def test_a_failure_is_told_again_without_another_try_until_its_pause_is_over(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        bench.errands.code = 1
        for _ in range(3):
            with pytest.raises(ImageError, match="cannot install"):
                await bench.find(str(bench.project))
        assert len(bench.errands.done) == 1
        await bench.cluster.clock.sleep(6)
        for _ in range(2):
            with pytest.raises(ImageError):
                await bench.find(str(bench.project))
        assert len(bench.errands.done) == 2
        await bench.cluster.clock.sleep(6)
        with pytest.raises(ImageError):
            await bench.find(str(bench.project))
        assert len(bench.errands.done) == 2, "the second pause is longer"
        bench.errands.code = 0
        await bench.cluster.clock.sleep(6)
        assert (await bench.find(str(bench.project))).made

    run(tmp_path, test)


def test_a_failure_that_lasts_says_so_and_is_tried_again_soon_for_another_job(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        bench.errands.code, bench.errands.output = 1, "ERROR: No matching distribution found for nosuch"
        for tries in (1, 2, 3):
            for _ in range(2):
                with pytest.raises(ImageError, match="No matching distribution found for nosuch") as caught:
                    await bench.find(str(bench.project))
                assert caught.value.lasts
            assert len(bench.errands.done) == tries
            await bench.cluster.clock.sleep(6)
        bench.errands.output = "WARNING: Retrying (Retry(total=0)) after connection broken by"
        with pytest.raises(ImageError) as caught:
            await bench.find(str(bench.project))
        assert not caught.value.lasts

    run(tmp_path, test)


def test_a_tenants_pod_of_before_does_not_get_around_admission(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        await bench.cluster.client.create(NAMESPACES, tenancy.build_namespace("ann", 611_007))
        with pytest.raises(ImageError, match="is a path"):
            await bench.find(str(bench.project), "ann")
        assert bench.errands.done == []

    run(tmp_path, test)


def test_the_owner_uses_on_what_an_earlier_version_made(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        mine = await bench.find(str(bench.project))
        old = bench.root / "environments" / Path(mine.prefix).parent.name
        (old / "bin").mkdir(parents=True)
        (old / "bin" / "python3").symlink_to(os.path.realpath(sys.executable))
        (old / "lib" / f"python3.{sys.version_info[1]}" / "site-packages").mkdir(parents=True)
        (old / ".ready").touch()
        assert (await bench.find(str(bench.project))).prefix == str(old)

    run(tmp_path, test)


def test_an_installation_has_the_limits_of_the_pod_and_never_none() -> None:
    pod = make_pod({"image": "x"})
    assert decide_limits(Pod(pod)).memory == 4 << 30
    assert decide_limits(Pod(pod)).pids
    pod["spec"]["containers"][0]["resources"] = {"limits": {"memory": "256Mi", "cpu": "500m"}}
    assert (decide_limits(Pod(pod)).memory, decide_limits(Pod(pod)).cpu_millis) == (256 << 20, 500)
