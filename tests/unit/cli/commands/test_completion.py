"""Completion: the words that fit, and that shells take the scripts."""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from trainmaster.cli import exits
from trainmaster.cli.commands import COMMANDS, load_command
from trainmaster.cli.commands.completion import FILES, SHELLS, complete
from trainmaster.cli.context import CommandContext, CommandTable
from trainmaster.cli.main import main

pytestmark = pytest.mark.unit


def ask(sort: str, given: argparse.Namespace) -> Sequence[str]:
    space = getattr(given, "namespace", "") or "default"
    return {
        "JOB": (f"{space}-first", f"{space}-second", "$(reboot)", "a b"),
        "RUNTIME": ("plain", "torch-distributed"),
        "NODE": ("local",),
        "NAMESPACE": ("default", "team"),
    }[sort]


def find(*words: str) -> list[str]:
    return [value for value, _ in complete(words, CommandTable(COMMANDS, load_command), ask)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("",), list(COMMANDS)),
        (("hist",), ["history"]),
        (("no-such", ""), []),
        (("logs", ""), ["default-first", "default-second"]),
        (("logs", "default-s"), ["default-second"]),
        (("logs", "-n", "team", "-f", ""), ["team-first", "team-second"]),
        (("logs", "--namespace=team", ""), ["team-first", "team-second"]),
        (("delete", "default-first", "default-"), ["default-first", "default-second"]),
        (("exec", "-it", "default-f"), ["default-first"]),
        (("exec", "default-first", "--", ""), [FILES]),
        (("logs", "-n", ""), ["default", "team"]),
        (("logs", "--namespace=t"), ["--namespace=team"]),
        (("history", ""), ["list", "get", "logs", "rerun", "export", "purge"]),
        (("history", "get", ""), ["default-first", "default-second"]),
        (("runtimes", "t"), ["torch-distributed"]),
        (("nodes", ""), ["local"]),
        (("check", "-f", ""), [FILES]),
        (("submit", "--file", ""), [FILES]),
        (("status", "-o", ""), ["table", "json", "yaml"]),
        (("status", "--outp"), ["--output"]),
        (("completion", ""), list(SHELLS)),
        (("up", "--home", ""), [FILES]),
    ],
)
def test_what_fits_is_offered(words: tuple[str, ...], expected: list[str]) -> None:
    assert find(*words) == expected


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_offers_its_options(command: str) -> None:
    assert "--help" in find(command, "--") or "--help" in find(command, "list", "--")


def test_hidden_options_are_not_offered() -> None:
    assert "--report-to" not in find("up", "--")
    assert "--words" not in find("completion", "--")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_takes_its_script(shell: str, tmp_path: Path) -> None:
    out = io.StringIO()
    assert main(("completion", shell), CommandContext({}, out, io.StringIO())) == exits.OK
    script = tmp_path / "script"
    script.write_text(out.getvalue())
    program = shutil.which(shell)
    if program is None:
        assert "completion --words" in script.read_text()  # no such shell here: at least it asks us
        return
    subprocess.run([program, "-n", str(script)], check=True, timeout=60)


def test_bash_completes_with_what_the_command_says(tmp_path: Path) -> None:
    out = io.StringIO()
    main(("completion", "bash"), CommandContext({}, out, io.StringIO()))
    stand_in = tmp_path / "trainmaster"
    stand_in.write_text('#!/bin/sh\nshift 2; printf "%s\\tsome text\\n" "got:$*" other\n')
    stand_in.chmod(0o755)
    program = (
        f"{out.getvalue()}\nCOMP_WORDS=({stand_in} logs -n team fi)\nCOMP_CWORD=4\n_trainmaster\n"
        'printf "[%s]" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[got:logs -n team fi][other]", done.stderr


def test_without_a_shell_the_three_are_named() -> None:
    err = io.StringIO()
    assert main(("completion",), CommandContext({}, io.StringIO(), err)) == exits.USAGE
    assert "bash|zsh|fish" in err.getvalue()


def test_without_a_server_nothing_is_offered_and_nothing_said(tmp_path: Path) -> None:
    out, err = io.StringIO(), io.StringIO()
    context = CommandContext({"TRAINMASTER_HOME": str(tmp_path)}, out, err)
    assert main(("completion", "--words", "logs", ""), context) == exits.OK
    assert (out.getvalue(), err.getvalue()) == ("", "")
