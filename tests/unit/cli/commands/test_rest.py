"""`trainmaster rest`: what it refuses before it starts anything."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main
from trainmaster.rest.services.creation.templates import Templates

pytestmark = pytest.mark.unit


def run(*arguments: str, home: Path) -> tuple[int, str]:
    err = io.StringIO()
    context = CommandContext({"HOME": str(home)}, io.StringIO(), err)
    return main(["rest", *arguments], context), err.getvalue()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--tls-cert", "a.pem"), exits.USAGE, "--tls-cert and --tls-key belong together"),
        (("--home", "/h", "--context", "c"), exits.USAGE, "--home is a server already"),
        (("--port", "70000"), exits.USAGE, "--port: rest.port must be 0 to 65535"),
        (("--templates", "/none"), exits.USAGE, "is no folder"),
        (("--home", "/none"), exits.NOT_RUNNING, "trainmaster up --detach --home /none"),
        (("--kubeconfig", "/none"), exits.FAILED, "cannot read the kubeconfig /none"),
        ((), exits.FAILED, "no kubeconfig was found"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_sentence(
    arguments: tuple[str, ...], code: int, text: str, tmp_path: Path
) -> None:
    got, said = run(*arguments, home=tmp_path)
    assert (got, text in said) == (code, True), said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("TRAINMASTER_REST_MAX_NODES", "many", "'many' is not a whole number"),
        ("TRAINMASTER_REST_MAX_BODY_BYTES", "0", "rest.max_body_bytes must be 1 or more"),
        ("TRAINMASTER_REST_SIGNUP", "true", "did you mean TRAINMASTER_REST_SIGN_UP?"),
        # What Kubernetes makes of a Service with our name.
        ("TRAINMASTER_REST_PORT", "tcp://10.96.0.9:443", "'tcp://10.96.0.9:443' is not a whole number"),
    ],
)
def test_a_wrong_setting_in_the_environment_is_told_in_one_sentence(
    variable: str, value: str, text: str, tmp_path: Path
) -> None:
    err = io.StringIO()
    context = CommandContext({"HOME": str(tmp_path), variable: value}, io.StringIO(), err)
    assert main(["rest"], context) == exits.USAGE
    assert text in err.getvalue() and variable in err.getvalue()


def test_templates_are_written_out_and_never_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "templates"
    assert run("--write-templates", str(target), home=tmp_path) == (exits.OK, "")
    written = sorted(str(path.relative_to(target)) for path in target.rglob("*.yaml"))
    assert len(written) == 8 and "tensorflow/trainjob.yaml" in written
    mine = target / "pytorch" / "trainjob.yaml"
    mine.write_text("mine")
    code, said = run("--write-templates", str(target), home=tmp_path)
    assert (code, mine.read_text()) == (exits.OK, "mine")
    assert f"{mine} is there already" in said
    assert Templates(target).list_frameworks() == ["pytorch", "tensorflow"]
