"""Runs every `async def` test with a `stage` once per kind of cluster (tests/flow/stage.py), every suite of properties
(tests/flow/suite.py) for each of its scenarios."""

from __future__ import annotations

import asyncio
import inspect
from typing import cast

import pytest

from tests.flow.plant import succeed
from tests.flow.stage import SERVERS, Stage, embedded_stage
from tests.flow.suite import ReconcilerSuite, parametrize
from tests.kube.cluster import KubeCluster
from tests.seam.stage import kube_stage
from trainmaster.testing.virtual import run_virtual


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.cls is not None and issubclass(metafunc.cls, ReconcilerSuite):
        parametrize(metafunc, metafunc.cls)
    if "stage" in metafunc.fixturenames:
        names = getattr(metafunc.function, "servers", SERVERS)
        marks = {"embedded": [pytest.mark.flow]}
        servers = [pytest.param(name, marks=marks.get(name, [pytest.mark.kube])) for name in names]
        metafunc.parametrize("server", servers, indirect=True, scope="session")


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> tuple[str, KubeCluster | None]:
    """Starts what outlives a test, so that it does not count as left behind."""
    name = str(request.param)
    return name, None if name == "embedded" else request.getfixturevalue("seam_cluster")


@pytest.fixture
def stage(server: tuple[str, KubeCluster | None]) -> tuple[str, KubeCluster | None]:
    """Replaced by the open stage when the test runs; here it only says where to play."""
    return server


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    names = [name for name in inspect.signature(test).parameters if name != "stage"]
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    server, cluster = cast(tuple[str, KubeCluster | None], pyfuncitem.funcargs["stage"])
    script = getattr(test, "script", succeed)

    async def play() -> None:
        stage: Stage
        if cluster is None:
            async with embedded_stage(script) as stage:
                await test(stage, **arguments)
        else:
            async with kube_stage(cluster, script, disturbed=server == "disturbed") as stage:
                await test(stage, **arguments)

    if cluster is None:
        run_virtual(play(), limit=86_400)
    else:
        asyncio.run(play())
    return True
