"""One server for the whole suite, and a raw way to talk to it: hostile clients do not use libraries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bad_input.raw import Hostile
from tests.support.server import start_server


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    home: Path = tmp_path_factory.mktemp("hostile") / "home"
    # Shorter than by default, because a test waits for it.
    with start_server(home, environ={"TRAINMASTER_LIMITS_HEADER_SECONDS": "3"}) as server:
        yield Hostile(server)
        # Whatever was sent, the log has no traceback: everything was refused on purpose.
        assert "Traceback" not in server.log, server.log[-4000:]
