"""The command line of `trainmaster run`, from words to a request: what belongs to whom, and which code is sent."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest

from tests.unit.jobs.compose.test_compose import load
from trainmaster.api.labels import ON_STALL
from trainmaster.api.meta import Object
from trainmaster.cli import exits
from trainmaster.cli.commands import run
from trainmaster.cli.commands.run import build_request
from trainmaster.cli.context import CommandContext
from trainmaster.cli.launch import flow
from trainmaster.cli.launch.flow import compile_job
from trainmaster.cli.launch.programs import TrainingProgram
from trainmaster.cli.launch.run_options import RunOptionError

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "project"
    (here / "src").mkdir(parents=True)
    (here / "train.py").write_text("import torch")
    (here / "src" / "plain.py").write_text("")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "other.py").write_text("import jax")
    monkeypatch.chdir(here)
    return here


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trainmaster run")
    run.add_arguments(parser)
    return parser.parse_args(list(words))


def compile_words(*words: str, runtime: str = "torch-distributed") -> list[str]:
    """What is started on every node."""
    options = parse(*words)
    program = TrainingProgram.read(options)
    asked = build_request(options, CommandContext({}, io.StringIO(), io.StringIO()), program)
    trainer = compile_job(asked, program, options, load(runtime), None).trainjob["spec"]["trainer"]
    return [*trainer["command"], *trainer.get("args", ())]


@pytest.mark.parametrize("rest", [{}, {"spec": {"mlPolicy": {"numNodes": 1}}}], ids=["no spec", "no template"])
def test_a_runtime_that_has_no_jobs_is_refused_in_a_sentence(rest: Object) -> None:
    options = parse("--", "true")
    program = TrainingProgram.read(options)
    asked = build_request(options, CommandContext({}, io.StringIO(), io.StringIO()), program)
    with pytest.raises(RunOptionError, match="the runtime bare has no jobs, so nothing would run your program"):
        compile_job(asked, program, options, {"metadata": {"name": "bare"}, **rest}, None)


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["train.py", "--nodes", "7"], ["torchrun", "train.py", "--nodes", "7"]),
        (["--nodes", "2", "src/plain.py", "-x", "--", "y"], ["python", "src/plain.py", "-x", "--", "y"]),
        (["--", "train.py", "--nodes"], ["train.py", "--nodes"]),
        (["--nproc", "2", "train.py"], ["torchrun", "train.py"]),
        (["--no-code", "/app/main.py"], ["python", "/app/main.py"]),
    ],
)
def test_options_stand_before_the_script_and_the_rest_is_the_scripts(words: list[str], want: list[str]) -> None:
    assert compile_words(*words) == want


def test_the_directory_one_stands_in_is_sent(project: Path) -> None:
    for script in ("src/plain.py", str(project / "src" / "plain.py")):
        program = TrainingProgram.read(parse(script))
        assert (program.script, program.root) == ("src/plain.py", project)


def test_a_script_from_elsewhere_is_sent_with_its_own_directory(project: Path) -> None:
    program = TrainingProgram.read(parse("../elsewhere/other.py"))
    assert (program.script, program.root) == ("other.py", (project.parent / "elsewhere").resolve())
    assert flow.find_runtime_name(parse("../elsewhere/other.py"), program) == "jax-distributed"


def test_with_a_directory_named_the_script_is_found_in_it(project: Path) -> None:
    program = TrainingProgram.read(parse("--code", "src", "plain.py"))
    assert (program.script, program.root) == ("plain.py", project / "src")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "what should run"),
        (["--"], "no command after"),
        (["nothing.py"], "does not exist"),
        (["src"], "is a directory"),
        (["--code", "src", "train.py"], "not below"),
        (["--code", "nowhere", "train.py"], "is no directory"),
        (["--code", "src", "--no-code", "plain.py"], "contradict"),
    ],
)
def test_what_cannot_run_is_told(words: list[str], text: str) -> None:
    with pytest.raises(RunOptionError, match=text):
        TrainingProgram.read(parse(*words))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--nodes", "0", "train.py"], "--nodes 0"),
        (["--max-restarts", "-1", "train.py"], "--max-restarts"),
        (["--overcommit", "train.py"], "--overcommit goes with --cpu"),
        (["--on-stall", "restart", "train.py"], "--on-stall restart needs --max-restarts"),
        (["--ttl", "soon", "train.py"], "--ttl"),
        (["--nproc", "2", "src/plain.py"], "--nproc 2"),
    ],
)
def test_numbers_that_make_no_sense_are_told(words: list[str], text: str) -> None:
    with pytest.raises(RunOptionError, match=text):
        compile_words(*words)


def test_a_wrong_option_has_a_code_that_no_job_has() -> None:
    with pytest.raises(exits.Failure, match=r"--frob.*trainmaster run --help") as caught:
        parse("--frob", "train.py")
    assert caught.value.code == exits.RUN_USAGE


def test_spans_are_seconds_or_written_with_units() -> None:
    options = parse("--ttl", "90", "--deadline", "1h30m", "train.py")
    asked = build_request(options, CommandContext({}, io.StringIO(), io.StringIO()), TrainingProgram.read(options))
    assert (asked.ttl_seconds, asked.deadline_seconds) == (90, 5400)


def test_the_policy_about_stalls_is_an_annotation_of_the_job() -> None:
    context = CommandContext({}, io.StringIO(), io.StringIO())
    for words, wanted in (
        (["train.py"], {}),
        (["--on-stall", "fail", "train.py"], {ON_STALL: "fail"}),
        (["--on-stall", "restart", "--max-restarts", "2", "train.py"], {ON_STALL: "restart"}),
    ):
        options = parse(*words)
        assert build_request(options, context, TrainingProgram.read(options)).annotations == wanted


@pytest.mark.parametrize("words", [["-d"], ["--nodes", "2"], ["--max-restarts", "1"]])
def test_input_that_a_program_would_wait_for_in_vain_is_refused(words: list[str]) -> None:
    context = CommandContext({}, io.StringIO(), io.StringIO(), io.StringIO())
    with pytest.raises(exits.Failure, match="--stdin") as caught:
        run.run(parse("--stdin", *words, "train.py"), context)
    assert caught.value.code == exits.RUN_USAGE
