"""The REST API's socket, and that a start loads nothing of what stands behind it."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from trainmaster.app.home.folder import HomeError
from trainmaster.app.rest.serving import build_plain_place, build_rest_place, build_url, open_listener
from trainmaster.app.settings import Dashboard, Rest

pytestmark = pytest.mark.unit

HEAVY = ("fastapi", "starlette", "pydantic", "trainmaster.rest")


def test_a_start_loads_neither_the_framework_nor_the_services() -> None:
    code = "import sys, trainmaster.app.embedded; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert [name for name in HEAVY if f"'{name}'" in loaded] == []


def test_the_port_of_the_last_start_is_taken_again() -> None:
    first, notes = open_listener(build_rest_place(Rest()), None)
    port = first.getsockname()[1]
    first.close()
    second, more = open_listener(build_rest_place(Rest()), port)
    with second:
        assert second.getsockname()[1] == port
        assert build_url(second) == f"https://127.0.0.1:{port}"
    assert notes == more == []


def test_a_port_that_another_program_has_is_replaced_unless_it_was_asked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        found, notes = open_listener(build_rest_place(Rest()), taken)
        with found:
            assert found.getsockname()[1] != taken
        assert len(notes) == 1 and f"port {taken}" in notes[0]
        with pytest.raises(HomeError, match=r"cannot serve REST on 127\.0\.0\.1 port \d+.*rest\.port"):
            open_listener(build_rest_place(replace(Rest(), port=taken)), None)


def test_an_address_that_is_not_this_machines_is_told() -> None:
    with pytest.raises(HomeError, match=r"choose others with rest\.address and rest\.port"):
        open_listener(build_rest_place(replace(Rest(), address="192.0.2.1")), None)


def test_an_address_for_all_is_told_as_one_that_clients_can_use() -> None:
    found, _ = open_listener(build_rest_place(replace(Rest(), address="0.0.0.0")), None)
    with found:
        assert build_url(found).startswith("https://127.0.0.1:")


def test_the_plain_door_is_on_loopback_wherever_the_others_are() -> None:
    found, _ = open_listener(build_plain_place(Dashboard()), None)
    with found:
        assert build_url(found, "http").startswith("http://127.0.0.1:")


def test_a_port_for_the_dashboard_that_is_taken_is_told_with_its_settings() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        wanted = Dashboard(port=other.getsockname()[1])
        with pytest.raises(HomeError, match=r"cannot serve the dashboard on .*dashboard\.port.*dashboard\.plain"):
            open_listener(build_plain_place(wanted), None)
