"""What an order must keep; every mistake is told, with its field, and nothing is made."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from trainmaster.jobs.compose import syntax as program_syntax
from trainmaster.rest.models.trainjobs import CreateRequest
from trainmaster.rest.services.creation import syntax
from trainmaster.rest.services.creation.guide_request import CODE_BYTES, GuideRequest, list_guide_problems
from trainmaster.rest.services.creation.syntax import INLINE_BYTES

pytestmark = pytest.mark.unit

GOOD = GuideRequest("alice", "team-a", "pytorch", "print(1)\n", 2, 0, "500m", "1Gi")


def find_mistakes(order: GuideRequest, **options: Any) -> dict[str, str]:
    rules = {"max_nodes": 1000, "check_code": True, **options}
    return {error.pointer: error.detail for error in asyncio.run(list_guide_problems(order, **rules))}


def test_a_good_order_is_good() -> None:
    assert find_mistakes(GOOD) == {}


def test_all_mistakes_are_told_at_once() -> None:
    order = GuideRequest("Alice Smith", "", "pytorch", " ", 0, -1, "many", "-1Gi")
    mistakes = find_mistakes(order)
    assert set(mistakes) == {
        "/user_id",
        "/namespace",
        "/training_code",
        "/config/num_nodes",
        "/config/gpu_per_node",
        "/config/cpu_per_node",
        "/config/memory_per_node",
    }
    assert mistakes["/user_id"].endswith("try 'alice-smith'")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        pytest.param("", "is empty", id="empty"),
        pytest.param(" \n\t", "is empty", id="blank"),
        pytest.param("import torch as", "is not a Python", id="half a line"),
        pytest.param("#include <stdio.h>\nint main(void) { return 0; }", "at line 2", id="another language"),
        pytest.param("x = '\udc80'", "is not UTF-8 at character 5", id="half a surrogate pair"),
        pytest.param("x = 1\0", "NUL", id="a NUL"),
        pytest.param("#" * (CODE_BYTES + 1), f"at most {CODE_BYTES} fit", id="too large"),
        pytest.param("한" * (CODE_BYTES // 2), "bytes; at most", id="too large in bytes, not in characters"),
        pytest.param("x = " + "(" * 500 + ")" * 500, "is not a Python", id="nested too deeply"),
    ],
)
def test_code_that_is_none_is_refused(code: str, text: str) -> None:
    mistakes = find_mistakes(replace(GOOD, code=code))
    assert list(mistakes) == ["/training_code"]
    assert text in mistakes["/training_code"]


def test_large_code_is_parsed_elsewhere_with_the_same_answer() -> None:
    padding = "# padding\n" * (INLINE_BYTES // 10 + 1)
    assert find_mistakes(replace(GOOD, code=padding + "print(1)\n")) == {}
    broken = find_mistakes(replace(GOOD, code=padding + "print(\n"))["/training_code"]
    line = padding.count("\n") + 1
    assert f"program at line {line}: '(' was never closed" in broken


def test_code_that_nobody_can_judge_in_time_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_syntax, "_PROGRAM", "import os; os.abort()")
    assert find_mistakes(replace(GOOD, code="(" * 10_000)) == {}
    monkeypatch.setattr(program_syntax, "_PROGRAM", "import time; time.sleep(60)")
    monkeypatch.setattr(program_syntax, "_WALL_SECONDS", 0.1)
    assert find_mistakes(replace(GOOD, code="(" * 10_000)) == {}


@pytest.mark.parametrize("piece", ["f'{a}' ", "(", "-", "not ", "[", "{a: ", "lambda: ", "a if b else ", "f(a="])
def test_nothing_long_is_parsed_in_the_server(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(code: bytes) -> str:
        raise AssertionError(f"{len(code)} bytes were parsed here")

    monkeypatch.setattr(syntax, "find_problem", refuse)
    find_mistakes(replace(GOOD, code=piece * (60_000 // len(piece))))


def test_code_for_a_newer_python_can_be_let_in() -> None:
    assert find_mistakes(replace(GOOD, code="type X = int\n"), check_code=False) == {}


@pytest.mark.parametrize("count", [0, -1, 1001, 10_000])
def test_the_number_of_nodes_has_bounds(count: int) -> None:
    assert find_mistakes(replace(GOOD, num_nodes=count)) == {"/config/num_nodes": f"must be 1 to 1000, not {count}"}


def test_a_user_id_must_leave_room_for_the_number_of_a_node() -> None:
    order = replace(GOOD, user_id="a" * 29, num_nodes=10)
    assert find_mistakes(order) == {}
    assert find_mistakes(replace(order, num_nodes=11))["/user_id"].endswith("at most 28 characters")
    assert find_mistakes(replace(order, user_id="a" * 28, num_nodes=11)) == {}


@pytest.mark.parametrize("amount", ["0", "-1", "lots", "1 GB", "1e99", "", "1Zi", "nan"])
def test_amounts_are_quantities_above_zero(amount: str) -> None:
    assert list(find_mistakes(replace(GOOD, memory_per_node=amount))) == ["/config/memory_per_node"]


# The model


BODY = {"user_id": "alice", "namespace": "n", "framework": "pytorch", "training_code": "print(1)"}


def test_the_guides_body_becomes_an_order() -> None:
    config = {"num_nodes": 2, "gpu_per_node": 1, "cpu_per_node": 4, "memory_per_node": "16Gi"}
    order = CreateRequest.model_validate({**BODY, "config": config}).to_request()
    assert order == GuideRequest("alice", "n", "pytorch", "print(1)", 2, 1, "4", "16Gi")


def test_what_is_left_out_asks_for_one_node_and_nothing_special() -> None:
    assert CreateRequest.model_validate(BODY).to_request() == GuideRequest("alice", "n", "pytorch", "print(1)")


@pytest.mark.parametrize(
    "config",
    [
        {"num_nodes": True},
        {"num_nodes": 1.5},
        {"num_nodes": "two"},
        {"num_nodes": None},
        {"gpu_per_node": "1 GPU"},
        {"gpu_per_node": "nvidia.com/gpu"},
        {"gpu_per_node": [1]},
        {"cpu_per_node": False},
        {"cpu_per_node": {"limits": 1}},
        {"nodes": 2},
    ],
)
def test_values_of_other_types_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CreateRequest.model_validate({**BODY, "config": config})
