"""`trainmaster dashboard`, as installed: the link, the browser, SSH, another server, and none."""

from __future__ import annotations

import json
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.doors import DoorBrowser
from tests.support.server import ServerProcess, clean_environ, command, start_server

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("dashboard") / "home") as server:
        yield server


def run(home: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    known = clean_environ({"TRAINMASTER_HOME": str(home), **environ})
    return subprocess.run(command(*arguments), env=known, capture_output=True, text=True, timeout=60)


def read_link(text: str) -> tuple[str, str]:
    """The address of the page, and the link."""
    found = re.fullmatch(r"(\S+/ui/)#/login\?link=([\w-]{43})\n", text)
    assert found is not None, text
    return found[1], found[2]


def test_the_link_that_it_prints_opens_the_dashboard_of_the_home(server: ServerProcess) -> None:
    done = run(server.home, "dashboard")
    page, link = read_link(done.stdout)
    assert done.returncode == 0 and page == server.info["dashboard"]["url"] and "two minutes" in done.stderr
    browser = DoorBrowser.at_plain(server)
    browser.open(link)
    assert browser.get("/api/v1/me").json()["administrator"] is True


def test_status_tells_the_address(server: ServerProcess) -> None:
    url = server.info["dashboard"]["url"]
    assert json.loads(run(server.home, "status", "-o", "json").stdout)["dashboard"] == {"url": url}
    assert f"dashboard:  {url}" in run(server.home, "status").stdout


def test_a_read_only_link_gives_a_read_only_login(server: ServerProcess) -> None:
    browser = DoorBrowser.at_plain(server)
    browser.open(read_link(run(server.home, "dashboard", "--read-only").stdout)[1])
    assert browser.get("/api/v1/me").json()["read_only"] is True


def test_the_browser_gets_the_link_in_a_private_file(server: ServerProcess, tmp_path: Path) -> None:
    """Arguments of processes can be read by every user of the machine."""
    opener = tmp_path / "opener"
    opener.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n')
    opener.chmod(0o755)
    environ = {"DISPLAY": ":0", "XDG_RUNTIME_DIR": str(tmp_path), "BROWSER": str(opener)}
    assert "opening" not in run(server.home, "dashboard", "--no-open", **environ).stderr
    done = run(server.home, "dashboard", **environ)
    assert "opening it" in done.stderr, done.stderr
    page = tmp_path / "trainmaster-dashboard.html"
    assert (tmp_path / "arguments").read_text().strip() == page.as_uri()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert read_link(done.stdout)[1] in page.read_text()


def test_over_ssh_it_prints_the_line_for_the_other_machine(server: ServerProcess) -> None:
    done = run(server.home, "dashboard", SSH_CONNECTION="192.0.2.9 50000 192.0.2.1 2222", DISPLAY=":0")
    port = server.info["dashboard"]["url"].split(":")[2].partition("/")[0]
    assert re.search(rf"ssh -N -L {port}:127\.0\.0\.1:{port} -p 2222 \S+@192\.0\.2\.1", done.stderr), done.stderr
    assert "opening" not in done.stderr


def test_a_tenant_opens_it_with_a_kubeconfig_and_the_address(server: ServerProcess, tmp_path: Path) -> None:
    issued = json.loads(run(server.home, "tenant", "add", "ann", "--without-walls", "-o", "json").stdout)
    text = server.kubeconfig.read_text()
    token = re.search(r'token: "?([^"\n]+)', text)
    assert token is not None
    mine = tmp_path / "ann.yaml"
    mine.write_text(text.replace(token[1], issued["token"]))
    done = run(tmp_path / "none", "dashboard", "--server", server.rest_url, "--kubeconfig", str(mine))
    page, link = read_link(done.stdout)
    assert page == f"{server.rest_url}/ui/"
    browser = DoorBrowser.at_tls(server)
    browser.open(link)
    assert browser.get("/api/v1/me").json()["tenant"] == "ann"
    mine.write_text(text.replace(token[1], "made-up"))
    refused = run(tmp_path / "none", "dashboard", "--server", server.rest_url, "--kubeconfig", str(mine))
    assert refused.returncode == 1 and "Traceback" not in refused.stderr


def test_without_a_server_it_starts_none_and_says_what_to_do(tmp_path: Path) -> None:
    done = run(tmp_path / "home", "dashboard")
    assert done.returncode == 3 and "trainmaster up --detach" in done.stderr and not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kubeconfig", "x"), "belong to --server"),
        (("--home", "x", "--server", "https://x"), "give one"),
        (("--server", "http://127.0.0.1:1", "--kubeconfig", "{kubeconfig}"), "no https address"),
    ],
)
def test_flags_that_make_no_sense_are_explained(
    server: ServerProcess, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    given = [one.replace("{kubeconfig}", str(server.kubeconfig)) for one in arguments]
    done = run(tmp_path / "none", "dashboard", *given)
    assert done.returncode == 2 and words in done.stderr


def test_a_server_without_rest_is_told(tmp_path: Path) -> None:
    with start_server(tmp_path / "home", environ={"TRAINMASTER_REST_ENABLED": "false"}) as server:
        done = run(server.home, "dashboard")
        assert done.returncode == 1 and "rest.enabled" in done.stderr
        assert json.loads(run(server.home, "status", "-o", "json").stdout)["dashboard"] == {}
