"""The home: who runs it, what survives a crash, and who may read its files."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from trainmaster.app.home.folder import AlreadyRunning, Home, HomeError, ServerInfo, default_root
from trainmaster.cli.servers.absent import explain_absent

pytestmark = pytest.mark.unit


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def info(home: Home, **fields: object) -> ServerInfo:
    return ServerInfo(**{"pid": 4711, "version": "1.2.3", "home": str(home.root), **fields})  # type: ignore[arg-type]


def test_nobody_runs_a_home_that_does_not_exist(home: Home) -> None:
    assert home.find_running() is None
    assert not home.root.exists()


def test_while_it_is_held_others_see_who_runs_it(home: Home) -> None:
    with home.hold(info(home)):
        assert home.find_running() == info(home)
        home.write_info(info(home, server="https://127.0.0.1:1"))
        assert home.find_running() == info(home, server="https://127.0.0.1:1")
    assert home.find_running() is None


def test_a_second_holder_is_refused_with_the_name_of_the_first(home: Home) -> None:
    with home.hold(info(home, server="https://127.0.0.1:1")):
        want = r"process 4711 \(trainmaster 1\.2\.3\) already runs .*127\.0\.0\.1:1"
        with pytest.raises(AlreadyRunning, match=want), home.hold(info(home, pid=2)):
            pass
        assert home.find_running() == info(home, server="https://127.0.0.1:1")


def test_a_description_that_outlived_its_server_counts_for_nothing(home: Home) -> None:
    home.prepare()
    home.write_info(info(home))
    assert home.find_running() is None
    with home.hold(info(home, pid=2)):
        assert home.find_running() == info(home, pid=2)


def test_a_server_that_died_is_told_apart_from_one_that_was_stopped(home: Home) -> None:
    with home.hold(info(home)):
        assert home.find_died() is None
    assert home.find_died() is None
    assert explain_absent(home) == f"no server runs in {home.root}: start it with `trainmaster up --detach`"
    home.write_info(info(home))
    assert home.find_died() == info(home)
    said = explain_absent(home, "my home")
    assert f"the server of {home.root} died (pid 4711)" in said
    assert "`trainmaster up --detach --home 'my home'`" in said
    assert str(home.server_log) in said


def test_a_holder_that_has_not_described_itself_is_still_seen(home: Home) -> None:
    with home.hold(info(home)):
        home.server_json.write_text("{")
        found = home.find_running()
    assert found == ServerInfo(0, "", str(home.root))


def test_a_description_by_a_newer_version_is_understood(home: Home) -> None:
    with home.hold(info(home)):
        home.server_json.write_text('{"pid": 1, "version": "9", "home": "h", "colour": "blue"}')
        assert home.find_running() == ServerInfo(1, "9", "h")


def test_the_owner_alone_can_read_what_lies_in_it(home: Home) -> None:
    with home.hold(info(home)):
        home.write_private(home.kubeconfig, "secret")
        for path in (home.root, home.store, home.pki, home.logs):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        for path in (home.kubeconfig, home.server_json):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_home_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeError, match="choose another with --home"):
        Home(tmp_path / "file" / "home").prepare()


def test_a_home_that_every_user_can_write_to_is_refused(home: Home) -> None:
    home.prepare()
    home.root.chmod(0o777)
    with pytest.raises(HomeError, match="chmod 700"):
        home.prepare()


def test_the_port_is_remembered(home: Home) -> None:
    home.prepare()
    assert home.find_port() is None
    home.write_port(6443)
    assert Home(home.root).find_port() == 6443


def test_the_default_home_is_in_the_users_data_directory() -> None:
    assert default_root({"TRAINMASTER_HOME": "/a/b"}) == Path("/a/b")
    assert default_root({"XDG_DATA_HOME": "/data"}) == Path("/data/trainmaster")
    assert default_root({}) == Path.home() / ".local/share/trainmaster"
