"""A person with a home of their own; whatever they started is stopped afterwards. A server with the SDK beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.shell import Person
from tests.support.clients import Raw, Target
from tests.support.sdk import Sdk, running_sdk
from tests.support.server import ServerProcess, start_server
from tools.toolbox import Toolbox


@pytest.fixture(scope="session")
def kubectl_path() -> Path:
    toolbox = Toolbox()
    path = toolbox.find_program("kubectl") or toolbox.find_kubectl()
    if path is None:
        pytest.skip(toolbox.why_missing("kubectl"))
    return path


@pytest.fixture
def make_person(tmp_path: Path, kubectl_path: Path) -> Iterator[Callable[[str], Person]]:
    people: list[Person] = []

    def make(name: str) -> Person:
        people.append(Person(tmp_path / name, kubectl_path))
        return people[-1]

    yield make
    for person in people:
        if person.trainmaster("down", "--stop-jobs", "--timeout", "20").code:
            person.trainmaster("down")


@pytest.fixture
def person(make_person: Callable[[str], Person]) -> Person:
    return make_person("home")


@pytest.fixture(scope="session")
def sdk_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("sdk") / "home") as server:
        yield server


@pytest.fixture(scope="session")
def sdk(sdk_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sdk]:
    with running_sdk(tmp_path_factory.mktemp("work"), sdk_server.home) as sdk:
        yield sdk


@pytest.fixture
def raw(sdk_server: ServerProcess) -> Iterator[Raw]:
    """The owner of the SDK's server."""
    client = Target("ours", sdk_server.kubeconfig, _issue_nothing).raw()
    yield client
    client.close()


def _issue_nothing(user: str, groups: tuple[str, ...], folder: Path) -> tuple[Path, Path]:
    raise AssertionError("these tests are the owner, or have a token")
