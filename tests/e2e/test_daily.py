"""A day with the installed command: real processes print, fail, are restarted and deleted, and no line is lost."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.shell import Person
from tests.support.server import clean_environ, command

pytestmark = pytest.mark.e2e

# Two ranks. The first attempt fails at rank 1 once both have said so; the second waits for a file to end.
SCRIPT = """
cd "$TRAINMASTER_OUTPUT_DIR"
echo "rank $RANK begins"
echo "to stderr" >&2
if [ ! -e failed-$RANK ]; then
  touch failed-$RANK
  if [ "$RANK" = 1 ]; then
    while [ ! -e failed-0 ]; do sleep 0.05; done
    echo "rank 1 gives up"
    exit 3
  fi
  sleep 600
fi
touch second-$RANK
while [ ! -e end ]; do sleep 0.05; done
echo "rank $RANK ends"
"""
HELLO = """
cd "$TRAINMASTER_OUTPUT_DIR"
echo "hello $TRAINMASTER_ATTEMPT"
touch ran-$(ls | wc -l)
until [ -e end ]; do sleep 0.05; done
"""


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    found = Person(tmp_path_factory.mktemp("daily") / "home", Path("kubectl"))  # which is not used here
    found.must("up", "--detach")
    yield found
    found.trainmaster("down", "--stop-jobs", "--timeout", "20")


def write_job(folder: Path, name: str, script: str, nodes: int = 2) -> str:
    env = [{"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}}}]  # fmt: skip  # noqa: E501
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": {"name": "plain"},
            "trainer": {"numNodes": nodes, "command": ["sh", "-c", script], "env": env},
        },
    }
    file = folder / f"{name}.json"
    file.write_text(json.dumps(job))
    return str(file)


@contextmanager
def following(person: Person, out: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`logs -f` into a file; entered once it has printed something."""
    environ = clean_environ({"TRAINMASTER_HOME": str(person.home)})
    words = tuple(command("logs", "-f", *words))
    with (
        out.open("w") as file,
        subprocess.Popen(words, env=environ, stdout=file, stderr=subprocess.PIPE, text=True) as process,
    ):
        try:
            subprocess.run(["sh", "-c", f"until [ -s {out} ]; do sleep 0.05; done"], check=True, timeout=90)
            yield process
        finally:
            process.kill()


def await_output(person: Person, name: str) -> Path:
    """The folder of a job's outputs, once there is a file of that name in one. Waiting is for the shell."""
    root = person.home / "history" / "results"
    script = f"until find {root} -name {name} 2>/dev/null | grep .; do sleep 0.05; done"
    found = subprocess.run(["sh", "-c", script], check=True, timeout=90, capture_output=True, text=True).stdout
    return Path(found.splitlines()[0]).parent


def test_following_crosses_a_failure_a_restart_of_the_server_and_the_end(person: Person, tmp_path: Path) -> None:
    person.must("submit", "-f", write_job(tmp_path, "cross", SCRIPT))
    with following(person, tmp_path / "out", "cross", "--all-attempts") as logs:
        await_output(person, "second-0")
        outputs = await_output(person, "second-1")
        person.must("down")
        person.must("up", "--detach")
        (outputs / "end").touch()
        _, err = logs.communicate(timeout=90)
    out = (tmp_path / "out").read_text()
    assert logs.returncode == 0, err
    assert Counter(out.splitlines()) == {
        "[0] rank 0 begins": 2,
        "[1] rank 1 begins": 2,
        "[0] to stderr": 2,
        "[1] to stderr": 2,
        "[1] rank 1 gives up": 1,
        "[0] rank 0 ends": 1,
        "[1] rank 1 ends": 1,
    }
    assert "--- attempt 1" in err
    assert person.must("wait", "cross", "--timeout", "60s") == "cross: complete\n"
    assert "gives up" in person.must("logs", "cross", "--attempt", "0", "--rank", "1")
    person.must("delete", "cross", "--wait")
    kept = person.trainmaster("logs", "cross", "--all-attempts")
    assert kept.code == 0
    assert sorted(kept.out.splitlines()) == sorted(out.splitlines())
    assert "from its history" in kept.err


def test_a_restart_that_is_asked_for_goes_on_counting(person: Person, tmp_path: Path) -> None:
    person.must("submit", "-f", write_job(tmp_path, "again", HELLO, nodes=1))
    await_output(person, "ran-0")
    assert person.must("restart", "again", "--wait").endswith("attempt 1\n")
    (await_output(person, "ran-1") / "end").touch()
    person.must("wait", "again", "--timeout", "60s")
    assert person.must("logs", "again", "--all-attempts", "--no-prefix") == "hello 0\nhello 1\n"
    assert person.must("logs", "again", "--attempt", "1", "--no-prefix") == "hello 1\n"
    assert "again-2 created" in person.must("restart", "again")
    person.must("delete", "again", "again-2", "--wait")


def test_a_wrong_name_and_no_server_have_exit_codes_of_their_own(person: Person, tmp_path: Path) -> None:
    assert person.trainmaster("get", "nobody").code == 7
    nowhere = {"TRAINMASTER_HOME": str(tmp_path / "elsewhere")}
    answer = person.trainmaster("list", environ=nowhere)
    assert answer.code == 3
    assert "trainmaster up --detach" in answer.err
