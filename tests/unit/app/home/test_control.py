"""The control socket: one JSON line each way, also below long paths, and nothing left behind."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trainmaster.app.home.control import NAME, ControlError, ask, serve_control

pytestmark = pytest.mark.unit


async def echo(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"heard": request["text"]}


async def fail(request: Mapping[str, Any]) -> Mapping[str, Any]:
    raise ValueError("no such thing")


def serve_and_ask(folder: Path, *requests: Mapping[str, Any]) -> list[Any]:
    async def main() -> list[Any]:
        answers: list[Any] = []
        async with serve_control(folder, {"echo": echo, "fail": fail}):
            for request in requests:
                try:
                    answers.append(await asyncio.to_thread(ask, folder, request, timeout=5))
                except ControlError as error:
                    answers.append(str(error))
        return answers

    return asyncio.run(main())


def test_an_operation_answers_and_the_socket_is_gone_afterwards(tmp_path: Path) -> None:
    assert serve_and_ask(tmp_path, {"operation": "echo", "text": "ä"}) == [{"heard": "ä"}]
    assert list(tmp_path.iterdir()) == []


def test_a_failing_operation_tells_why_and_the_next_request_is_served(tmp_path: Path) -> None:
    answers = serve_and_ask(tmp_path, {"operation": "fail"}, {"operation": "echo", "text": "on"})
    assert answers == ["ValueError: no such thing", {"heard": "on"}]


def test_an_unknown_operation_is_refused(tmp_path: Path) -> None:
    [answer] = serve_and_ask(tmp_path, {"operation": "dance"})
    assert "does not know that request" in answer


def test_a_home_with_a_long_path_has_a_socket_too(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    assert serve_and_ask(folder, {"operation": "echo", "text": "deep"}) == [{"heard": "deep"}]


def test_a_socket_that_outlived_its_server_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(tmp_path / NAME))
    assert serve_and_ask(tmp_path, {"operation": "echo", "text": "new"}) == [{"heard": "new"}]


def test_without_a_server_the_caller_gets_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        ask(tmp_path, {"operation": "echo"}, timeout=1)
