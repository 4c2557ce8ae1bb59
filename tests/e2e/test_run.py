"""`trainmaster run` as a person uses it: on a terminal, in a pipe, with mistakes. One server for all."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.shell import Answer, Person
from tests.support.screen import Terminal
from tests.support.server import clean_environ, command

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
COUNT = """
import os, sys, time
rank = os.environ.get("PET_NODE_RANK", "0")
for step in range(1, 1000):
    print(f"step {step} of rank {rank}")
    if os.path.exists(sys.argv[1]):
        break
    time.sleep(0.1)
"""
BREAK = """
import os

def advance():
    raise ValueError("the gradients are not numbers")

if os.environ["PET_NODE_RANK"] == "1":
    advance()
__import__("time").sleep(60)
"""
REPORT = """
import os, sys
print(os.getcwd(), sorted(os.listdir()), *sys.argv[1:])
sys.exit(9)
"""
ASK = """
print("hello", input("name? "))
answer = 41
breakpoint()
answer += 1
print("the answer is", answer)
"""
_ESCAPE = re.compile(rb"\x1b\[[0-9;]*m")


class Runner(Person):
    """In a directory with scripts, at a server that runs."""

    def __init__(self, home: Path, kubectl: Path, project: Path) -> None:
        super().__init__(home, kubectl)
        self.project = project
        self.flag = project.parent / "flags" / "enough"
        self.flag.parent.mkdir()
        self.counting = ["--volume", f"{self.flag.parent}:/flags", "count.py", "/flags/enough"]
        """Counts until the flag is there. Pods have a /tmp of their own."""

    def environ(self, **extra: str) -> dict[str, str]:
        plain = {name: text for name, text in clean_environ().items() if name not in ("CI", "NO_COLOR", "COLUMNS")}
        return {**plain, "TRAINMASTER_HOME": str(self.home), "TERM": "xterm-256color", **extra}

    def run(self, *arguments: str, **extra: str) -> Answer:
        """In a pipe."""
        done = subprocess.run(
            command("run", *arguments),
            env=self.environ(**extra),
            cwd=self.project,
            capture_output=True,
            text=True,
            timeout=90,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def open(self, verb: str, *arguments: str, columns: int = 80, rows: int = 24, **extra: str) -> Terminal:
        environ = self.environ(**extra)
        return Terminal(command(verb, *arguments), environ, columns=columns, rows=rows, directory=self.project)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, kubectl_path: Path) -> Iterator[Runner]:
    place = tmp_path_factory.mktemp("run")
    project = place / "project"
    project.mkdir()
    (project / "count.py").write_text(COUNT)
    (project / "broken.py").write_text(BREAK)
    runner = Runner(place / "home", kubectl_path, project)
    yield runner
    if runner.trainmaster("down", "--stop-jobs", "--timeout", "20").code:
        runner.trainmaster("down")


@pytest.fixture
def runner(shared: Runner) -> Iterator[Runner]:
    shared.flag.unlink(missing_ok=True)
    yield shared
    shared.flag.touch()  # whatever still counts ends


def find_rows(terminal: Terminal, beginning: str) -> list[str]:
    return [line for line in terminal.lines if line.startswith(beginning)]


# The first test starts the server, as a new user would.


def test_a_new_user_trains_on_two_nodes_with_one_command(runner: Runner) -> None:
    script = str(ROOT / "examples/run/train.py")
    answer = runner.run("--nodes", "2", "--code", str(ROOT / "examples/run"), script, "--steps", "12", "--pause", "0")
    assert answer.code == 0, answer.err
    assert "starting a server" in answer.err
    assert re.search(r"^\[0\] step  10  loss 0\.\d+", answer.out, re.M)
    assert "[1] rank 1 of 2 has met its peers" in answer.out
    assert "is complete" in answer.err
    assert re.search(r"outputs: 1 file.*trainmaster outputs get train-", answer.err.splitlines()[-1])


def test_whoever_has_only_a_kubeconfig_sends_the_code_along(runner: Runner, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "pkg").mkdir(parents=True)
    (project / "train.py").write_text("import pkg.model\n")
    (project / "pkg" / "model.py").write_text(REPORT)
    (project / "notes.txt").write_text("")
    (project / ".trainmasterignore").write_text("notes.txt\n")
    there = ["--kubeconfig", str(runner.home / "kubeconfig"), "--home", str(tmp_path / "none"), "--nodes", "2"]
    answer = runner.run(*there, "--name", "far", "--code", str(project), "train.py", "$$", "a b")
    assert answer.code == 9, answer.err
    want = "/workspace/code ['.trainmasterignore', 'pkg', 'train.py'] $$ a b"
    assert want in answer.out
    assert not (tmp_path / "none").exists(), "nothing is kept here"
    maps = json.loads(runner.kubectl("get", "configmaps", "-l", "trainmaster.dev/code-of=far", "-o", "json"))["items"]
    assert [item["metadata"]["ownerReferences"][0]["name"] for item in maps] == ["far"]
    again = runner.must("restart", "far")
    assert "far-2 created" in again
    assert runner.trainmaster("wait", "far-2").code == 1
    assert want in runner.must("logs", "far-2"), "it shares the code"


@pytest.mark.parametrize("columns", [80, 200])
def test_the_live_view_fits_the_terminal_and_gives_it_back(runner: Runner, columns: int) -> None:
    with runner.open("run", "--nodes", "2", *runner.counting, columns=columns) as terminal:
        terminal.wait_for("Running · 2 nodes · torch-distributed", "[0] step 3 of rank 0", "[1] step 3 of rank 1")
        terminal.wait_for("RANK   STATE", "Ctrl-C: detach or stop")
        assert len(find_rows(terminal, "count-")) == 1, "one panel"
        ranks = [line for line in terminal.lines if re.match(r"[01] +running ", line)]
        assert len(ranks) == 2
        assert all(re.search(r"step \d+ of rank [01]$", line) for line in ranks)
        assert ("-node-0-1-" in ranks[1]) == (columns == 200), "a wide one shows Pods"
        assert terminal.is_cursor_hidden()
        assert _ESCAPE.search(terminal.raw), "colours"
        runner.flag.touch()
        assert terminal.end() == 0
        assert "is complete" in terminal.text
        assert not terminal.is_cursor_hidden()
        assert terminal.mode == terminal.before


def test_after_a_resize_there_is_one_panel_as_wide_as_the_terminal(runner: Runner) -> None:
    with runner.open("run", "--nodes", "2", *runner.counting) as terminal:
        terminal.wait_for("step 2 of rank 1", "Ctrl-C: detach or stop")
        for columns, rows in ((50, 12), (132, 40), (80, 24)):
            terminal.resize(columns, rows)
            rule = "─" * (columns - 1)

            def is_drawn(rule: str = rule) -> bool:
                return [line for line in terminal.lines if line.startswith("───")] == [rule]

            terminal.wait_until(is_drawn, f"a rule of {columns - 1}")
            terminal.wait_until(lambda: len(find_rows(terminal, "count-")) == 1, "one title")
            assert any("of rank" in line for line in terminal.lines if line.startswith("["))
        runner.flag.touch()
        assert terminal.end() == 0


def test_ctrl_c_asks_and_a_detached_job_goes_on_can_be_watched_again_and_stopped(runner: Runner) -> None:
    with runner.open("run", "--name", "kept", "--nodes", "2", *runner.counting) as terminal:
        terminal.wait_for("step 2 of rank 1")
        terminal.type("\x03")
        terminal.wait_for("Detach (d), stop the job (s), or go on looking (c)?")
        terminal.type("c")
        terminal.wait_until(lambda: "Ctrl-C: detach or stop" in terminal.lines, "the usual footer")
        terminal.type("\x03")
        terminal.wait_for("Detach (d)")
        terminal.type("d")
        assert terminal.end() == 247
        assert "kept goes on" in terminal.text
        assert "trainmaster watch kept" in terminal.text
        assert terminal.mode == terminal.before
    assert {pod["status"]["phase"] for pod in runner.pods("kept")} == {"Running"}
    with runner.open("watch", "kept") as terminal:
        terminal.wait_for("kept  Running", "of rank 1")
        terminal.type("\x03")
        terminal.wait_for("Detach (d)")
        terminal.type("s")
        assert terminal.end() == 130
        assert "kept is stopped" in terminal.text
        assert "trainmaster resume kept" in terminal.text
        assert not terminal.is_cursor_hidden()
    assert runner.pods("kept") == []
    assert "True" in runner.kubectl("get", "trainjob", "kept", "-o", "jsonpath={.spec.suspend}").capitalize()
    runner.kubectl("delete", "trainjob", "kept")


@pytest.mark.parametrize("leave", ["ctrl-c twice", "sigterm"])
def test_leaving_in_a_hurry_detaches_and_gives_the_terminal_back(runner: Runner, leave: str) -> None:
    with runner.open("run", *runner.counting, NO_COLOR="1") as terminal:
        terminal.wait_for("step 2 of rank 0", "Ctrl-C: detach or stop")
        assert not _ESCAPE.search(terminal.raw), "no colours with NO_COLOR"
        if leave == "sigterm":
            terminal.signal(signal.SIGTERM)
        else:
            terminal.type("\x03")
            terminal.wait_for("Detach (d)")
            terminal.type("\x03")
        assert terminal.end() == 247
        assert not terminal.is_cursor_hidden()
        assert terminal.mode == terminal.before


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_closed_window_detaches(runner: Runner, unbuffered: str) -> None:
    name = f"left{unbuffered}"
    with runner.open("run", "--name", name, *runner.counting, PYTHONUNBUFFERED=unbuffered) as terminal:
        terminal.wait_for("step 2 of rank 0")
        assert terminal.hang_up() == 247
    assert {pod["status"]["phase"] for pod in runner.pods(name)} == {"Running"}


def test_a_broken_script_says_which_rank_failed_where_and_how_to_go_on(runner: Runner) -> None:
    with runner.open("run", "--nodes", "2", "broken.py", rows=40) as terminal:
        assert terminal.end() == 1
        text = terminal.text
    assert re.search(r"broken-\w+ failed \(\d+s\): rank 1 ended with exit code 1", text)
    assert "ValueError: the gradients are not numbers, at broken.py:5 in advance" in text
    assert re.search(r"trainmaster logs broken-\w+ --rank 1", text)
    assert re.search(r"trainmaster describe broken-\w+", text)


def test_in_a_pipe_lines_are_plain_and_only_the_job_speaks_on_standard_output(runner: Runner) -> None:
    script = "echo here $PET_NODE_RANK '$(x)' '$$'"
    answer = runner.run("--no-code", "--nodes", "2", "--image", "mine:1", "--", "sh", "-c", script)
    assert sorted(answer.out.splitlines()) == ["[0] here 0 $(x) $$", "[1] here 1 $(x) $$"]
    assert answer.code == 0
    assert "\x1b" not in answer.out + answer.err
    assert all(line.startswith("trainmaster: ") for line in answer.err.splitlines())
    first, second, *_ = (line for line in answer.err.splitlines() if "starting a server" not in line)
    assert re.fullmatch(
        r"trainmaster: image mine:1 is not pulled: the Python environment /\S+ runs in its place", first
    )
    assert re.match(r"trainmaster: sh-\w+ is submitted \(2 nodes, torch-distributed\)", second)


@pytest.mark.parametrize(
    ("script", "code"), [("exit 7", 7), ("kill -9 $$", 137)], ids=["the code of the rank", "128 + signal"]
)
def test_the_exit_code_is_the_jobs(runner: Runner, script: str, code: int) -> None:
    assert runner.run("--no-code", "--", "sh", "-c", f"echo once; {script}").code == code


def test_restarts_are_as_many_as_asked_for_and_none_by_default(runner: Runner) -> None:
    script = 'echo "attempt $TRAINMASTER_ATTEMPT"; exit 3'
    answer = runner.run("--no-code", "--max-restarts", "1", "--name", "again", "--", "sh", "-c", script)
    assert answer.code == 3
    assert answer.out.splitlines() == ["attempt 0", "attempt 1"]
    assert "restart 1" in answer.err
    runtime = runner.kubectl("get", "trainjob", "again", "-o", "jsonpath={.spec.runtimeRef.name}")
    assert json.loads(runner.kubectl("get", "trainingruntime", runtime, "-o", "json"))["metadata"]["labels"] == {
        "trainer.kubeflow.org/framework": "torch",
        "trainmaster.dev/derived": "true",
    }
    assert runner.run("--no-code", "--", "sh", "-c", script).out.splitlines() == ["attempt 0"]


@pytest.mark.parametrize("code", [True, False], ids=["with code", "without code"])
def test_what_a_dry_run_prints_runs_with_kubectl(runner: Runner, code: bool) -> None:
    name = f"printed-{str(code).lower()}"
    program = runner.counting if code else ["--no-code", "--", "true"]
    answer = runner.run("--dry-run", "--name", name, "--env", "A=1", "--label", "team=ml", "--ttl", "1h", *program)
    assert answer.code == 0, answer.err
    assert ("# local: the volume 'code'" in answer.out) == code
    runner.flag.touch()
    runner.kubectl("apply", "--validate=strict", "-f", "-", stdin=answer.out)
    runner.kubectl("wait", "--for=condition=Complete", f"trainjob/{name}", "--timeout=60s")


def test_programs_read_objects_line_by_line(runner: Runner) -> None:
    answer = runner.run("-o", "json", "--no-code", "--", "sh", "-c", "echo hi; exit 4")
    entries = [json.loads(line) for line in answer.out.splitlines()]
    assert {"type": "log", "attempt": 0, "job": "node", "rank": 0, "text": "hi"} in entries
    assert (entries[-1]["type"], entries[-1]["state"], entries[-1]["code"]) == ("result", "Failed", 4)
    assert answer.code == 4


def test_detached_from_the_beginning_it_prints_the_name_and_returns(runner: Runner) -> None:
    answer = runner.run("--detach", "--name", "alone", *runner.counting)
    assert (answer.code, answer.out) == (0, "trainjob.trainer.kubeflow.org/alone\n")
    runner.flag.touch()
    watched = runner.trainmaster("watch", "alone")
    assert watched.code == 0
    assert "of rank 0" in watched.out


def refer_to_old_server(runner: Runner) -> list[str]:
    stale = runner.project.parent / "stale"
    text = (runner.home / "kubeconfig").read_text()
    stale.write_text(re.sub(r"server: .*", "server: https://127.0.0.1:1", text))
    return ["--kubeconfig", str(stale), "--no-code", "--", "true"]


def fill_directory(runner: Runner) -> list[str]:
    folder = runner.project.parent / "huge"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").touch()
    with (folder / "data.bin").open("w") as file:
        os.truncate(file.fileno(), 10 << 30)  # no byte of it is on the disk
    return ["--code", str(folder), "train.py"]


def write_half_a_line(runner: Runner) -> list[str]:
    (runner.project / "half.py").write_text("import torch\nprint('a'\n")
    return ["half.py"]


def take_port(runner: Runner) -> list[str]:
    port = (runner.home / "port").read_text().strip()
    home = runner.project.parent / "other"
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(f"[server]\nport = {port}\n")
    return ["--home", str(home), "--no-code", "--", "true"]


MISTAKES: list[tuple[str, Callable[[Runner], list[str]], int, tuple[str, ...]]] = [
    ("no script", lambda _: ["nothing.py"], 240, ("nothing.py does not exist", "trainmaster run -- ")),
    ("a syntax error", write_half_a_line, 240, ("half.py is not a Python 3.", "at line 2: '(' was never closed")),
    ("no such option", lambda _: ["--frob", "count.py"], 240, ("--frob", "trainmaster run --help")),
    ("no such runtime", lambda _: ["--runtime", "x", "count.py"], 240, ("there is no runtime 'x'", "plain")),
    (
        "too much memory",
        lambda _: ["--nodes", "9", "--memory", "900Gi", "count.py"],
        242,
        ("can never run", "--memory"),
    ),
    ("reserved", lambda _: ["--env", "PET_NNODES=7", "count.py"], 242, ("PET_NNODES",)),
    ("10 GB of code", fill_directory, 243, ("10.0 GiB", ".trainmasterignore", "--no-code")),
    ("old kubeconfig", refer_to_old_server, 241, ("does not answer", "kubectl --kubeconfig")),
    (
        "no right to the home",
        lambda _: ["--home", "/proc/home", "count.py"],
        241,
        ("/proc/home cannot be used", "--home"),
    ),
    ("the port is taken", take_port, 241, ("cannot listen", "server.port")),
]


@pytest.mark.parametrize(("build", "code", "words"), [entry[1:] for entry in MISTAKES], ids=[x[0] for x in MISTAKES])
def test_a_mistake_is_one_sentence_with_what_helps(
    runner: Runner, build: Callable[[Runner], list[str]], code: int, words: tuple[str, ...]
) -> None:
    answer = runner.run(*build(runner))
    assert answer.code == code, answer.err
    said = [line for line in answer.err.splitlines() if "starting a server" not in line]
    assert len(said) == 1
    assert all(word in said[0] for word in words), said[0]


def test_watching_what_does_not_exist_is_a_mistake_too(runner: Runner) -> None:
    for arguments in (["nobody"], ["--frob", "x"]):
        answer = runner.trainmaster("watch", *arguments)
        assert answer.code == 240
        assert "trainmaster" in answer.err


def test_a_server_of_another_version_is_named_with_the_way_to_restart_it(runner: Runner) -> None:
    file = runner.home / "server.json"
    before = file.read_text()
    file.write_text(json.dumps({**json.loads(before), "version": "0.0.1"}))
    try:
        answer = runner.run("--no-code", "--", "true")
    finally:
        file.write_text(before)
    assert answer.code == 241
    assert "is trainmaster 0.0.1" in answer.err
    assert "trainmaster down" in answer.err


# Last: it ends the server.


def test_standard_input_reaches_the_program_up_to_its_end(runner: Runner) -> None:
    done = subprocess.run(
        command("run", "--stdin", "--no-code", "--", "sh", "-c", "read first; echo first $first; wc -c"),
        env=runner.environ(),
        cwd=runner.project,
        input=b"one\n" + b"x" * 300_000,
        capture_output=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [b"first", b"one", b"300000"]


def test_a_debugger_has_the_terminal_and_outlives_the_server(runner: Runner) -> None:
    (runner.project / "ask.py").write_text(ASK)
    with runner.open("run", "--stdin", "--name", "ask", "ask.py") as terminal:
        terminal.wait_for("name?")
        terminal.type("Ann\r")
        terminal.wait_for("hello Ann", "(Pdb)")
        os.kill(json.loads((runner.home / "server.json").read_text())["pid"], signal.SIGKILL)
        assert terminal.end() == 244
        assert terminal.mode == terminal.before
        pod = re.search(r"kubectl attach -it (ask-node-0-0-\w+) -n default", terminal.text)
    assert pod is not None
    assert runner.trainmaster("up", "--detach").code == 0
    attach = [str(runner.kubectl_path), "--kubeconfig", str(runner.home / "kubeconfig"), "attach", "-it", pod[1]]
    with Terminal(attach, runner.environ()) as terminal:
        terminal.wait_for("If you don't see a command prompt")
        terminal.type("p answer\r")
        terminal.wait_for("41")
        terminal.type("c\r")
        terminal.wait_for("the answer is 42")
        terminal.end()
    assert runner.trainmaster("watch", "ask").code == 0


def test_when_the_server_dies_the_run_says_so_the_job_lives_and_the_next_command_takes_it_over(runner: Runner) -> None:
    with runner.open("run", "--name", "orphan", *runner.counting) as terminal:
        terminal.wait_for("step 2 of rank 0")
        os.kill(json.loads((runner.home / "server.json").read_text())["pid"], signal.SIGKILL)
        assert terminal.end() == 244
        assert "the server is gone" in terminal.text
        assert "trainmaster up --detach" in terminal.text
        assert not terminal.is_cursor_hidden()
    again = runner.run("--no-code", "--", "true")
    assert again.code == 0, again.err
    runner.flag.touch()
    watched = runner.trainmaster("watch", "orphan")
    assert watched.code == 0, watched.err
