"""Why there is no server, in one sentence with what helps."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import trainmaster
from trainmaster.app.home.folder import Home, HomeError, ServerInfo
from trainmaster.cli import exits
from trainmaster.cli.launch.servers import check_version, explain_ended, explaining_errors

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (exits.Failure("its log", 70), ("is full or broken", "--home")),
        (exits.Failure("cannot listen on 127.0.0.1 port 6443: choose others with --port"), ("server.port in",)),
        (exits.Failure("unknown setting"), ("no server could be started: unknown setting",)),
        (HomeError("every user can write to it"), ("every user can write to it",)),
        (OSError(errno.ENOSPC, "No space left on device"), ("No space left", "free some space")),
        (PermissionError(errno.EACCES, "Permission denied"), ("Permission denied", "--home")),
    ],
)
def test_what_is_wrong_with_the_home_or_its_server_is_told(
    error: Exception, words: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(exits.Failure) as caught, explaining_errors(Home(tmp_path)):
        raise error
    assert caught.value.code == exits.RUN_NO_SERVER
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)


def test_a_server_of_another_version_is_refused_with_the_way_to_restart_it(tmp_path: Path) -> None:
    check_version(ServerInfo(1, trainmaster.__version__, ""), Home(tmp_path))
    with pytest.raises(exits.Failure, match=r"is trainmaster 9\.9, .*trainmaster down --home") as caught:
        check_version(ServerInfo(1, "9.9", ""), Home(tmp_path))
    assert caught.value.code == exits.RUN_NO_SERVER


def test_a_server_that_ended_meanwhile_is_told_with_its_log(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with home.hold(ServerInfo(1, "9", str(home.root))):
        assert explain_ended(home) == ""
    said = explain_ended(home)
    assert str(home.server_log) in said and f"`trainmaster doctor --home {home.root}`" in said
    assert explain_ended(None) == ""
