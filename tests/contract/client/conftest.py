"""Runs every `async def` test of this suite once per server."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.contract.client.stage import SERVERS, Place, play
from tests.kube.cluster import KubeCluster
from trainmaster.api.declaring import catalogue, crd


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "stage" in metafunc.fixturenames:
        marks = {"kube": [pytest.mark.kube]}
        servers = [pytest.param(name, marks=marks.get(name, [])) for name in SERVERS]
        metafunc.parametrize("server", servers, indirect=True, scope="session")


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> str:
    """Starts what outlives a test, so that it does not count as left behind."""
    name = str(request.param)
    if name == "kube":
        request.getfixturevalue("kube_with_our_kinds")
    return name


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    def kube() -> KubeCluster:
        found = request.getfixturevalue("kube_with_our_kinds")
        assert isinstance(found, KubeCluster)
        return found

    return Place(tmp_path / "store", kube)


@pytest.fixture
def stage(server: str, place: Place) -> tuple[str, Place]:
    """Replaced by the open stage when the test runs; here it only says where to play."""
    return server, place


@pytest.fixture(scope="session")
def kube_with_our_kinds(kube: KubeCluster) -> Iterator[KubeCluster]:
    """The real server, with our CRDs installed as a user would."""
    definitions = crd.build_all(catalogue.build().kinds)
    kube.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions}))
    yield kube


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    names = [name for name in inspect.signature(test).parameters if name != "stage"]
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    server, place = cast(tuple[str, Place], pyfuncitem.funcargs["stage"])
    play(server, place, lambda stage: test(stage, **arguments))
    return True
