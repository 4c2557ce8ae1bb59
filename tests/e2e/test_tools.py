"""explain, top and exec on a real server, as a person uses them; a terminal through a pseudo-terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.shell import Person
from tests.support.server import clean_environ, command
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main

pytestmark = pytest.mark.e2e

_SECONDS = 60.0
_READY = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.2; done"


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory, kubectl_path: Path) -> Iterator[Person]:
    """A server on which `first` runs and `second` waits for CPUs."""
    person = Person(tmp_path_factory.mktemp("tools") / "home", kubectl_path)
    person.home.mkdir()
    (person.home / "config.toml").write_text("[node]\ncpus = 2.0\n")
    person.must("up", "--detach")
    try:
        person.train("first", _READY, cpu="1500m")
        person.submit("second", "true", nodes=2, cpu="400m")
        person.kubectl("wait", "--for=jsonpath={.status.waiting.reason}=Queued", "trainjob/second", "--timeout=60s")
        yield person
    finally:
        if person.trainmaster("down", "--stop-jobs", "--timeout", "20").code:
            person.trainmaster("down")


def test_explain_tells_the_place_and_the_smallest_change(busy: Person) -> None:
    said = busy.must("explain")
    assert said.startswith("default/second: Waiting (Queued)\n")
    assert "queue:      1 of 1" in said
    assert "next:       when default/first ends" in said
    assert "starts now: with 0.25 CPUs instead of 0.4 on each node" in said
    assert "with 1 node instead of 2" in said
    (found,) = json.loads(busy.must("explain", "second", "-o", "json"))
    assert found["changes"][1]["patch"] == {"spec": {"trainer": {"numNodes": 1}}}
    assert busy.must("explain", "first").startswith("default/first: Running\n  why:        has been running for ")
    missing = busy.trainmaster("explain", "nobody")
    assert (missing.code, missing.out) == (7, "")
    assert "trainmaster history list" in missing.err


def test_top_shows_what_a_rank_uses(busy: Person) -> None:
    lines = busy.must("top").splitlines()
    assert lines[0].split() == ["JOB", "RANK", "CPU", "MEMORY", "GPU", "POD"]
    assert lines[1].split()[:2] == ["first", "0"] and len(lines) == 2
    (found,) = json.loads(busy.must("top", "-A", "-o", "json"))
    assert found["memory"] > 0 and found["cpu_asked"] == 1.5
    waiting = busy.trainmaster("top", "second")
    assert (waiting.code, "nothing of second runs" in waiting.err) == (7, True)
    assert 'there is no TrainJob "secnd"' in busy.trainmaster("top", "secnd").err


def test_exec_passes_input_outputs_and_the_exit_code_on(busy: Person) -> None:
    done = busy.trainmaster("exec", "first", "--", "sh", "-c", "echo out; echo bad >&2; exit 7")
    assert (done.code, done.out, done.err) == (7, "out\n", "bad\n")
    data = os.urandom(300_000)
    environ = clean_environ({"TRAINMASTER_HOME": str(busy.home)})
    full = command("exec", "-i", "first", "--", "cat")
    echoed = subprocess.run(full, env=environ, input=data, capture_output=True, timeout=90)
    assert (echoed.returncode, echoed.stdout == data, echoed.stderr) == (0, True, b"")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nobody", "--", "ls"), 7, 'there is no TrainJob "nobody"'),
        (("second", "--", "ls"), 7, "trainmaster explain second -n default"),
        (("first", "--rank", "9", "--", "ls"), 7, "running: node-0"),
        (("first", "--", "/no/such/program"), 1, "no such file"),
        (("first", "-c", "none", "--", "ls"), 7, "has no container none: it has node"),
        (("first", "--rank", "-1", "--", "ls"), 2, "--rank must be 0 or more"),
    ],
)
def test_exec_says_why_nothing_was_run(busy: Person, arguments: tuple[str, ...], code: int, words: str) -> None:
    answer = busy.trainmaster("exec", *arguments)
    assert answer.code == code
    assert words in answer.err


def test_a_shell_has_a_terminal_that_follows_ours_and_ctrl_c_goes_to_the_program(busy: Person) -> None:
    terminal = Terminal(busy, "exec", "first", "-it", "--", "sh", "-c", "PS1='ready> ' exec sh -i")
    try:
        terminal.expect(b"ready> ")
        terminal.resize(33, 111)
        terminal.type_until(b"stty size\r", b"33 111")
        terminal.write(b"echo be''gun; sleep 1000\r")
        terminal.expect(b"begun")
        terminal.type_until(b"\x03", b"ready> ")
        terminal.write(b"echo back ag''ain\r")
        terminal.expect(b"back again")
        terminal.write(b"exit 9\r")
        assert terminal.wait() == 9
    finally:
        terminal.close()


PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
SYMPTOMS: dict[str, tuple[str, int, str]] = {
    "explain my-job": ("second", 0, "starts now:"),
    "explain -A": ("", 0, "default/second: Waiting"),
    "check -f trainjob.yaml": ("", 0, "asked the scheduler of https://"),
    "logs my-job": ("first", 0, "ready"),
    "logs my-job --attempt 0": ("first", 0, "ready"),
    "describe my-job": ("second", 0, "Queued"),
    "history list": ("", 0, ""),
    "top my-job": ("first", 0, "first   0"),
    "exec my-job --rank 0 -- ps ax": ("first", 0, "sleep"),
    "exec my-job -- env": ("first", 0, "PATH="),
    "doctor trainjob my-job": ("first", 0, "nothing found"),
    "cleanup --dry-run": ("", 0, ""),
    "status": ("", 0, "ready"),
    "kubeconfig": ("", 0, "kubeconfig"),
    "kubeconfig --merge --to my-kubeconfig": ("", 0, 'put the context "trainmaster"'),
    "config": ("", 0, "node.cpus"),
    "doctor": ("", 0, "isolation"),
    "purge --finished --dry-run": ("", 0, ""),
    "nodes": ("", 0, "local"),
    "list": ("", 0, "second"),
    "version": ("", 0, "trainmaster"),
}
"""Command on the page -> (the job that is meant, exit code, words that it prints)."""
ON_CLUSTERS = ["doctor --kubeconfig ~/.kube/config", "kubectl get events -n trainmaster-system"]
"""About an operator: tests/seam/test_bad_input.py runs them on a real control plane."""


def list_page_commands() -> list[str]:
    blocks = PAGE.read_text().split("```")[1::2]
    lines = (line.strip() for block in blocks for line in block.splitlines())
    return sorted({line.removeprefix("trainmaster ") for line in lines if line})


def test_every_command_of_the_page_is_tried() -> None:
    assert list_page_commands() == sorted([*SYMPTOMS, *ON_CLUSTERS])


@pytest.mark.parametrize("typed", SYMPTOMS)
def test_each_symptom_has_a_command_that_answers(
    busy: Person, typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, code, words = SYMPTOMS[typed]
    shutil.copy(PAGE.parents[1] / "examples" / "first-job" / "trainjob.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    with open("out", "w+") as out, open("err", "w+") as err:
        # In this process: what is asked for here is the answer, and twenty interpreters take their time.
        found = main(
            typed.replace("my-job", job).split(), CommandContext({"TRAINMASTER_HOME": str(busy.home)}, out, err)
        )
    said = (tmp_path / "out").read_text() + (tmp_path / "err").read_text()
    assert found == code, said
    assert words in said


def test_a_starter_project_trains_by_its_own_manifest(busy: Person, tmp_path: Path) -> None:
    folder = tmp_path / "starter"
    said = busy.must("init", "--plain", str(folder))
    assert "trainmaster run --nodes 2 train.py" in said
    busy.must("check", "-f", str(folder / "trainjob.yaml"), "--strict")
    busy.must("submit", "-f", str(folder / "trainjob.yaml"), "--wait", "--timeout", "90s")
    printed = busy.must("logs", "starter")
    assert "rank 1 of 2" in printed and "step  200 loss 0.0" in printed
    assert "result.json is written; copy it with `trainmaster outputs get JOB`" in printed
    assert "result.json" in busy.must("outputs", "list", "starter")
    assert "default/starter: Complete" in busy.must("explain", "starter")
    purged = busy.must("purge", "--finished", "--yes")
    assert "default/starter   TrainJob   Complete" in purged
    assert "removed 1 TrainJobs and 1 records with their logs and outputs" in purged
    assert busy.trainmaster("outputs", "list", "starter").code != 0
    assert [job["metadata"]["name"] for job in json.loads(busy.kubectl("get", "trainjobs", "-o", "json"))["items"]] == [
        "first",
        "second",
    ]


def test_a_merged_kubeconfig_serves_kubectl_and_jobs_are_completed_by_name(busy: Person, tmp_path: Path) -> None:
    own = tmp_path / "config"
    busy.must("kubeconfig", "--merge", "--to", str(own), "--name", "laptop")
    arguments = ("--kubeconfig", str(own), "--context", "laptop")
    assert "trainjob.trainer.kubeflow.org/first" in busy.kubectl(*arguments, "get", "trainjobs", "-o", "name")
    assert busy.must("explain", "second", *arguments).startswith("default/second: Waiting")
    assert busy.must("completion", "--words", "logs", "").split() == ["first", "second"]
    assert busy.must("completion", "--words", "logs", "-n", "kube-sys").split() == ["kube-system"]


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, person: Person, *arguments: str) -> None:
        self._pid, self._master = pty.fork()
        if self._pid == 0:
            full = command(*arguments)
            os.execve(full[0], full, clean_environ({"TRAINMASTER_HOME": str(person.home), "TERM": "xterm"}))
        self._text = b""
        self._ended = False

    def expect(self, words: bytes, seconds: float = _SECONDS) -> bool:
        end = time.monotonic() + seconds
        while words not in self._text:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._master], [], [], left)[0]:
                assert seconds < _SECONDS, f"no {words!r} in {self._text!r}"
                return False
            try:
                self._text += os.read(self._master, 4096)
            except OSError:
                raise AssertionError(f"it ended without {words!r}: {self._text!r}") from None
        self._text = self._text.partition(words)[2]
        return True

    def type_until(self, keys: bytes, words: bytes) -> None:
        """Types again until the answer comes: a size arrives when it arrives."""
        for _ in range(30):
            self.write(keys)
            if self.expect(words, 2.0):
                return
        raise AssertionError(f"{keys!r} never led to {words!r}: {self._text!r}")

    def write(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait(self) -> int:
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            if select.select([self._master], [], [], 0.2)[0]:
                try:
                    os.read(self._master, 4096)
                except OSError:
                    break
        self._ended = True
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def close(self) -> None:
        if not self._ended:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._master)
