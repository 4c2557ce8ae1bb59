"""The owner's credential: made once, private, and a kubeconfig that survives restarts and edits."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from trainmaster.app.home.credentials import OWNER, ensure_secret, load_static_tokens, write_kubeconfig
from trainmaster.app.home.folder import Home
from trainmaster.client.kubeconfig import load_kubeconfig
from trainmaster.kit.ids import SeededIds

pytestmark = pytest.mark.unit


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    (home.pki / "ca.crt").write_text("the authority")
    return home


def write(home: Home, server: str = "https://127.0.0.1:6443", seed: int = 1) -> None:
    write_kubeconfig(home, server, home.pki / "ca.crt", SeededIds(seed))


def test_the_kubeconfig_is_private_and_names_server_authority_and_token(home: Home) -> None:
    write(home)
    assert stat.S_IMODE(home.kubeconfig.stat().st_mode) == 0o600
    config = load_kubeconfig([home.kubeconfig])
    assert (config.server, config.ca_pem, config.namespace) == ("https://127.0.0.1:6443", "the authority", "default")
    assert config.token == (home.pki / "owner.token").read_text()


def test_the_token_in_it_is_the_owners(home: Home) -> None:
    write(home)
    found = load_static_tokens(home, SeededIds(2)).find(load_kubeconfig([home.kubeconfig]).token)
    assert found is not None
    assert found[0].user == OWNER.user
    assert "system:masters" in found[0].groups
    assert load_static_tokens(home, SeededIds(2)).find("guess") is None


def test_what_the_owner_added_survives_the_next_start(home: Home) -> None:
    write(home)
    edited = home.kubeconfig.read_text().replace("namespace: default", "namespace: team-a")
    home.kubeconfig.write_text(edited)
    home.kubeconfig.chmod(0o644)
    write(home, seed=2)
    assert home.kubeconfig.read_text() == edited
    assert stat.S_IMODE(home.kubeconfig.stat().st_mode) == 0o600


@pytest.mark.parametrize("change", ["server", "authority", "token", "gone"])
def test_a_kubeconfig_that_would_not_work_is_written_anew(home: Home, change: str) -> None:
    write(home)
    server = "https://127.0.0.1:6443"
    if change == "server":
        server = "https://127.0.0.1:7000"
    elif change == "authority":
        (home.pki / "ca.crt").write_text("another")
    elif change == "token":
        (home.pki / "owner.token").unlink()
    else:
        home.kubeconfig.unlink()
    write(home, server, seed=2)
    config = load_kubeconfig([home.kubeconfig])
    assert config.server == server
    assert config.ca_pem == (home.pki / "ca.crt").read_text()
    assert config.token == (home.pki / "owner.token").read_text()


def test_addresses_with_colons_stay_addresses(home: Home) -> None:
    write(home, "https://[::1]:6443")
    assert yaml.safe_load(home.kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == "https://[::1]:6443"


def test_a_secret_is_made_once(home: Home) -> None:
    first = ensure_secret(home, "x", SeededIds(1))
    assert ensure_secret(home, "x", SeededIds(2)) == first
    assert stat.S_IMODE((home.pki / "x").stat().st_mode) == 0o600
