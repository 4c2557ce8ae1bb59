"""Any part of the logs of a real job, of both its attempts and ranks: while it runs, and when it was deleted."""

from __future__ import annotations

import json
import re
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from tests.browser.jobs import submit
from tests.support.clients import JSON, Raw, Visitor
from tests.support.server import ServerProcess, start_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LINES = 3000
CODE = f"""
import os, sys, time
rank, attempt = os.environ["JOB_COMPLETION_INDEX"], os.environ["TRAINMASTER_ATTEMPT"]
print("\\x1b[31mbegins\\x1b[0m", attempt, rank)
for number in range({LINES}):
    print("number", attempt, rank, number)
print("x" * 100_000)
print("done", attempt, rank, flush=True)
if attempt == "0":
    time.sleep(2)
    sys.exit("no data")
time.sleep(600)
"""
EACH = LINES + 3


@dataclass
class Desk:
    server: ServerProcess

    def connect(self, token: str) -> Raw:
        return Visitor(self.server.rest_url, ssl.create_default_context(cafile=str(self.server.ca)), token)

    @property
    def rest(self) -> Raw:
        return self.connect((self.server.home / "pki" / "owner.token").read_text())

    def read_job(self) -> JSON:
        found: JSON = self.rest.get("/api/v1/jobs/talks?namespace=default")
        return found


@dataclass
class Reader:
    desk: Desk
    base: str

    def get(self, path: str, **query: object) -> Any:
        code, answer = self.ask(path, **query)
        assert code == 200, answer
        return answer

    def ask(self, path: str, **query: object) -> tuple[int, Any]:
        words = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items())
        code, answer = self.desk.rest.call("GET", f"/api/v1/{self.base}/logs/{path}?namespace=default&{words}")
        return code, answer

    def walk(self, size: int, **query: object) -> list[JSON]:
        """All lines, from the end to the beginning."""
        lines: list[JSON] = []
        at = "end"
        while True:
            part = self.get("window", at=at, before=size, after=0, **query)
            lines = part["lines"] + lines
            if part["is_first"]:
                return lines
            at = part["begin"]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with start_server(tmp_path_factory.mktemp("windows") / "home") as server:
        desk = Desk(server)
        context = ssl.create_default_context(cafile=str(server.ca))
        kube = Visitor(server.url, context, (server.home / "pki" / "owner.token").read_text())
        submit(kube, "talks", CODE, nodes=2)
        yield desk
        desk.rest.delete("/api/v1/jobs/talks?namespace=default")
        wait_until(lambda: all("talks" not in pod["metadata"]["name"] for pod in kube.get("/api/v1/pods")["items"]))


@pytest.fixture(scope="module")
def live(desk: Desk) -> Reader:
    reader = Reader(desk, "jobs/talks")
    wait_until(lambda: desk.read_job()["attempt"] == 1)
    # The logs of the first attempt are kept a moment after its Pods are gone.
    wait_until(lambda: len(reader.get("search", q="^done [01]", regex="true")["hits"]) == 4)
    return reader


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def check_all(reader: Reader) -> None:
    lines = reader.walk(1000)
    counts = Counter(line["text"] for line in lines if line["text"].startswith("number"))
    assert len(counts) == 4 * LINES
    assert set(counts.values()) == {1}
    for attempt in (0, 1):
        for rank in (0, 1):
            own = [line["text"] for line in lines if (line["attempt"], line["worker"]) == (attempt, rank)]
            numbers = [text for text in own if text.startswith("number")]
            assert numbers == [f"number {attempt} {rank} {number}" for number in range(LINES)]
            assert "x" * 100_000 in own
    only = reader.walk(5000, worker=1, attempt=0)
    assert {(line["attempt"], line["worker"]) for line in only} == {(0, 1)}
    assert len(only) >= EACH


def test_windows_have_every_line_once(live: Reader) -> None:
    check_all(live)


def test_a_line_is_found_by_search_and_shown_with_what_stands_around_it(live: Reader) -> None:
    (hit,) = live.get("search", q="NUMBER 0 1 1500")["hits"]
    address = "~".join(str(hit[name]) for name in ("attempt", "job", "worker", "time", "same"))
    part = live.get("window", at=address, before=2, after=2, worker=1)
    assert [line["text"] for line in part["lines"]] == [f"number 0 1 {number}" for number in range(1498, 1502)]
    assert part["before"] == 2
    assert 0 < part["begin_share"] < part["end_share"] < 0.6
    assert len(live.get("search", q="begins 1")["hits"]) == 2, "without colours"
    everything = live.get("search", q=".", regex="true")
    assert (len(everything["hits"]), everything["stopped"]) == (10_000, "hits")


def test_a_time_and_a_share_are_places_too(live: Reader) -> None:
    line = live.get("window", at="start", after=1)["lines"][0]
    assert live.get("window", at=line["time"][:19] + "Z", before=0, after=1)["lines"] == [line]
    part = live.get("window", at="50%", before=1, after=1)
    assert 0.4 < part["begin_share"] < 0.6
    assert live.get("window", at="100%", before=0, after=5)["is_last"]


def test_a_file_has_all_of_it(live: Reader) -> None:
    text = live.get("download")
    assert len(re.findall(r"^\S+Z node/\d number 0", text, re.MULTILINE)) == 2 * LINES
    assert len(re.findall(r"^\S+Z 1 node/\d number 1", text, re.MULTILINE)) == 2 * LINES


@pytest.mark.parametrize(
    ("path", "query", "parameter"),
    [
        ("window", {"at": "nowhere"}, "at"),
        ("window", {"at": "101%"}, "at"),
        ("window", {"at": "0~node~0~~-1"}, "at"),
        ("window", {"at": "x" * 401}, "at"),
        ("window", {"before": -1}, "before"),
        ("window", {"after": 5001}, "after"),
        ("window", {"worker": "one"}, "worker"),
        ("search", {}, "q"),
        ("search", {"q": ""}, "q"),
        ("search", {"q": "x" * 1001}, "q"),
        ("search", {"q": "(", "regex": "true"}, "q"),
        ("search", {"q": "(a*)*\\1", "regex": "true"}, "q"),
        ("search", {"q": "((a{100}){100}){100}", "regex": "true"}, "q"),
    ],
)
def test_what_is_no_place_or_pattern_is_told(live: Reader, path: str, query: JSON, parameter: str) -> None:
    code, answer = live.ask(path, **query)
    assert code == 422, answer
    assert json.loads(answer)["errors"][0]["parameter"] == parameter


def test_a_pattern_that_explodes_elsewhere_does_not_here(live: Reader) -> None:
    assert live.get("search", q="(x+x+)+y", regex="true")["hits"] == []


def test_another_tenant_gets_nothing(desk: Desk, live: Reader) -> None:
    token = desk.rest.create("/api/v1/tenants", {"name": "ann", "without_walls": True})["token"]
    for path in ("window", "search?q=x", "download"):
        mark = "&" if "?" in path else "?"
        code, answer = desk.connect(token).call("GET", f"/api/v1/{live.base}/logs/{path}{mark}namespace=default")
        assert code == 403, answer
        assert "number" not in str(answer)


def test_the_record_of_a_deleted_job_has_the_same(desk: Desk, live: Reader) -> None:
    uid = desk.read_job()["uid"]
    before = live.get("window", at="start", before=0, after=50)
    desk.rest.delete("/api/v1/jobs/talks?namespace=default")
    reader = Reader(desk, f"history/{uid}")
    wait_until(lambda: reader.ask("window")[0] == 200 and len(reader.get("search", q="done")["hits"]) == 4)
    check_all(reader)
    after = reader.get("window", at="start", before=0, after=50)
    assert after["lines"] == before["lines"]
    assert len(reader.get("download")) > 4 * 100_000
