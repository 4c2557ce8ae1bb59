"""One server for the whole tier; whatever was done to it, it lives, and its log has no traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.attacks.site import Site, running_site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if os.geteuid() != 0:
        pytest.skip("tenants have walls only where the server runs as root")
    with running_site(tmp_path_factory.mktemp("attacked") / "home") as site:
        yield site
        assert site.is_alive()
        assert "Traceback" not in site.server.log, site.server.log[-4000:]
