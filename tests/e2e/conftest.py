"""A person with a home of their own; whatever they started is stopped afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.shell import Person
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
