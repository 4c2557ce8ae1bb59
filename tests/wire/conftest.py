"""Fixtures of the wire tests: servers, kubectl versions, namespaces.

Every test runs on our server. `test_kube.py` runs the scenarios that are marked for it on a real kube-apiserver too,
which keeps the expectations honest. TRAINMASTER_WIRE_SERVER=kube runs everything there instead, and
TRAINMASTER_WIRE_KUBECONFIG names a cluster that already runs. What cannot be the same on both is listed in
`differences.py`, by name and with the reason.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.kube.cluster import KubeCluster
from tests.support.clients import Raw, Target
from tests.support.kubectl import Binary, Kubectl, find_binaries
from tests.wire.differences import ONLY_KUBE, ONLY_OURS
from tests.wire.scenario import Scenario
from tests.wire.targets import describe_kube, describe_running, start_ours

HERE = Path(__file__).parent
MANIFESTS = HERE / "manifests"
DEFAULT_SERVER = os.environ.get("TRAINMASTER_WIRE_SERVER", "ours")
RUNNING_CLUSTER = os.environ.get("TRAINMASTER_WIRE_KUBECONFIG", "")
FULL_VERSIONS = ("1.20", "1.28")
"""Get the whole checklist, as the newest does. 1.20 is the oldest and the only one with legacy discovery and validation
on the client's side; 1.28 is the last that needs OpenAPI v2 for writing."""

_RUN = secrets.token_hex(2)
"""Keeps the namespaces of two runs on one cluster apart."""
_serial = count(1)


def _binaries(which: str) -> list[Binary]:
    binaries = [binary for binary in find_binaries() if not binary.is_dispatcher]
    newest = binaries[-1:]
    if which == "newest":
        return newest
    if which == "full":
        return [binary for binary in binaries[:-1] if binary.name in FULL_VERSIONS] + newest
    return list(find_binaries())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per kubectl version and scenario, as far as each is asked for."""
    if "binary" not in metafunc.fixturenames:
        return
    if "scenario" in metafunc.fixturenames:
        only = getattr(metafunc.module, "VERSIONS", None)
        rows = [row for item in metafunc.module.SCENARIOS for row in _scenario_rows(item, only)]
        metafunc.parametrize(("binary", "scenario"), rows, indirect=("binary",))
    else:
        which = getattr(metafunc.function, "wire_versions", "newest")
        rows = [pytest.param(binary, id=binary.name) for binary in _binaries(which)]
        metafunc.parametrize("binary", rows, indirect=True)


def _scenario_rows(item: Scenario, only: str | None) -> Iterator[ParameterSet]:
    for binary in _binaries(only or ("core" if item.core else "full")):
        if binary.minor >= item.since:
            yield pytest.param(binary, item, id=f"{binary.name}-{item.slug}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is listed as impossible on the server of the test; the list says why."""
    out = [item for item in items if item.path.is_relative_to(HERE) and _title(item) in _impossible(item)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


def _impossible(item: pytest.Item) -> dict[str, str]:
    on_kube = DEFAULT_SERVER == "kube" or item.get_closest_marker("kube")
    return ONLY_OURS if on_kube else ONLY_KUBE


def _title(item: pytest.Item) -> str:
    assert isinstance(item, pytest.Function)
    found = item.callspec.params.get("scenario") if hasattr(item, "callspec") else None
    return found.title if isinstance(found, Scenario) else item.originalname


# ---- servers ----------------------------------------------------------------


@pytest.fixture(scope="session")
def kube_target(request: pytest.FixtureRequest) -> Target:
    if RUNNING_CLUSTER:
        return describe_running(Path(RUNNING_CLUSTER))
    cluster: KubeCluster = request.getfixturevalue("kube")
    return describe_kube(cluster)


@pytest.fixture(scope="session")
def main_target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    if DEFAULT_SERVER == "kube":
        yield request.getfixturevalue("kube_target")
        return
    with start_ours(tmp_path_factory.mktemp("ours")) as target:
        yield target


@pytest.fixture
def target(main_target: Target) -> Target:
    return main_target


@pytest.fixture
def raw(target: Target) -> Iterator[Raw]:
    """The administrator's own connection, for what a test prepares and inspects."""
    client = target.raw()
    yield client
    client.close()


@pytest.fixture
def namespace(target: Target, raw: Raw, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh namespace; it is deleted afterwards where the server lives on, and nobody waits for that."""
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.module.__name__.rpartition("test_")[2])
    name = f"{stem}-{_RUN}-{next(_serial)}"
    raw.create("/api/v1/namespaces", {"metadata": {"name": name}})
    if not target.is_ours:
        _await_account(raw, name)
    yield name
    if target.is_ours or RUNNING_CLUSTER:
        code, answer = raw.call("DELETE", f"/api/v1/namespaces/{name}")
        assert code in (200, 202, 404, 409), answer


def _await_account(raw: Raw, namespace: str) -> None:
    """A cluster refuses Pods until a controller has made the namespace's default account."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    with raw.watch(f"{path}?watch=true&timeoutSeconds=30") as events:
        next(event for event in events if event["object"]["metadata"]["name"] == "default")


# ---- kubectl ----------------------------------------------------------------


@pytest.fixture
def binary(request: pytest.FixtureRequest) -> Binary:
    chosen: Binary = request.param
    return chosen


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("homes")


@pytest.fixture
def kubectl(target: Target, binary: Binary, namespace: str, homes: Path) -> Kubectl:
    """A kubectl as the administrator in a fresh namespace. Its caches are shared by the tests of one version."""
    home = homes / f"{target.name}-{binary.name}"
    found = Kubectl(binary, binary.minor, target.kubeconfig, home, namespace, MANIFESTS)
    if binary.is_dispatcher:
        found = _resolved(found)
    return found


_dispatched: dict[Path, int] = {}


def _resolved(kubectl: Kubectl) -> Kubectl:
    """The dispatcher with the version that it becomes for this server."""
    if kubectl.kubeconfig not in _dispatched:
        found = re.search(r'"minor": "(\d+)', kubectl.must("version -o json"))
        assert found, "the client version comes first"
        _dispatched[kubectl.kubeconfig] = int(found.group(1))
    return Kubectl(
        kubectl.binary,
        _dispatched[kubectl.kubeconfig],
        kubectl.kubeconfig,
        kubectl.home,
        kubectl.namespace,
        kubectl.cwd,
    )
