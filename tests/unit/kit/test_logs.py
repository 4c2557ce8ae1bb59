from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from trainmaster.kit import logs

pytestmark = pytest.mark.unit

log = logging.getLogger("trainmaster.some.part")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def _json_lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_carries_its_fields_and_the_context(stream: io.StringIO) -> None:
    logs.setup(form="json", stream=stream)
    with logs.context(controller="jobset", namespace="a"), logs.context(name="b"):
        log.info("job restarted", extra={"action": "jobset.restarted", "attempt": 2})
    log.info("later")
    first, second = _json_lines(stream)
    assert first["message"] == "job restarted" and first["level"] == "info"
    assert {key: first[key] for key in ("controller", "namespace", "name", "action", "attempt")} == {
        "controller": "jobset",
        "namespace": "a",
        "name": "b",
        "action": "jobset.restarted",
        "attempt": 2,
    }
    assert "controller" not in second


def test_tasks_keep_the_context_in_which_they_were_started(stream: io.StringIO) -> None:
    logs.setup(form="json", stream=stream)

    async def work(name: str) -> None:
        with logs.context(task_name=name):
            await asyncio.sleep(0)
            log.info("working")

    async def main() -> None:
        await asyncio.gather(work("one"), work("two"))

    asyncio.run(main())
    assert [line["task_name"] for line in _json_lines(stream)] == ["one", "two"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_are_blanked_out(stream: io.StringIO, form: str) -> None:
    logs.setup(form=form, stream=stream)
    with logs.context(bearer_token="t0ps3cret"):
        log.warning("login", extra={"Authorization": "t0ps3cret", "user": "ada"})
    assert "t0ps3cret" not in stream.getvalue()
    assert "ada" in stream.getvalue()


def test_text_is_one_line_with_quoted_values(stream: io.StringIO) -> None:
    logs.setup(stream=stream)
    log.info("said", extra={"text": 'a "b"\nc', "count": 3, "empty": ""})
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert r'said text="a \"b\"\nc" count=3 empty=""' in line


def test_an_exception_brings_its_traceback(stream: io.StringIO) -> None:
    logs.setup(form="json", stream=stream)
    try:
        raise KeyError("x")
    except KeyError:
        log.exception("failed")
    assert "KeyError: 'x'" in str(_json_lines(stream)[0]["exception"])


def test_the_level_decides_what_is_written(stream: io.StringIO) -> None:
    logs.setup(level="warning", stream=stream)
    log.info("quiet")
    log.warning("loud")
    assert "quiet" not in stream.getvalue() and "loud" in stream.getvalue()


def test_the_context_can_be_read() -> None:
    assert logs.current_context() == {}
    with logs.context(a=1):
        assert logs.current_context() == {"a": 1}
