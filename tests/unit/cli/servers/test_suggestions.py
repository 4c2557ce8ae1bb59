"""Commands that we suggest work where the user is."""

from __future__ import annotations

import argparse

import pytest

from trainmaster.cli.commands import load_command
from trainmaster.cli.servers.suggestions import COMMANDS, add_flags, read_flags

pytestmark = pytest.mark.unit

FLAGS = " --kubeconfig '/tmp/my config' --context lab"


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("see `trainmaster logs job -n a` and more", f"see `trainmaster logs job -n a{FLAGS}` and more"),
        ("`trainmaster explain JOB`", f"`trainmaster explain JOB{FLAGS}`"),
        ("  next:       trainmaster resume job -n a", f"  next:       trainmaster resume job -n a{FLAGS}"),
        ("pods: kubectl describe pod x -n a", f"pods: kubectl describe pod x -n a{FLAGS}"),
        ("  trainmaster logs -f job   what it prints", f"  trainmaster logs -f job{FLAGS}   what it prints"),
        ("ttl: trainmaster cleanup --yes   # if so", f"ttl: trainmaster cleanup --yes{FLAGS}   # if so"),
        ("`trainmaster exec job -it -- bash`", f"`trainmaster exec job -it{FLAGS} -- bash`"),
        ("`kubectl uncordon a && kubectl label b`", f"`kubectl uncordon a{FLAGS} && kubectl label b{FLAGS}`"),
        ("`trainmaster up` starts one", "`trainmaster up` starts one"),
        ("`trainmaster history get job` shows it", f"`trainmaster history get job{FLAGS}` shows it"),
        ("`trainmaster history purge job` forgets it", "`trainmaster history purge job` forgets it"),
        ("`trainmaster list --kubeconfig x`", "`trainmaster list --kubeconfig x`"),
        ("trainmaster: there is no job", "trainmaster: there is no job"),
    ],
)
def test_the_flags_of_the_cluster_are_added(line: str, want: str) -> None:
    assert add_flags(line, FLAGS) == want
    assert add_flags(line, "") == line


def test_the_flags_are_those_that_the_user_gave() -> None:
    given = {"kubeconfig": "/tmp/my config", "context": "lab"}
    assert read_flags(argparse.Namespace(**given)) == FLAGS
    assert read_flags(argparse.Namespace(**given, output="table")) == FLAGS
    assert read_flags(argparse.Namespace(**given, output="json")) == "", "programs read it"
    assert read_flags(argparse.Namespace(kubeconfig="", context="")) == ""


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_of_the_commands_takes_the_flags(name: str) -> None:
    parser = argparse.ArgumentParser()
    load_command(name).add_arguments(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parser = action.choices["list"]
    assert "--kubeconfig" in parser.format_help()
