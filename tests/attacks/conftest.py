"""One server for the whole tier; whatever was done to it, it lives, and its log has no traceback."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

from tests.attacks.site import Site, running_site

PACKAGES = {
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": tempfile.mkdtemp(prefix="tm-index-"),
    "PIP_EXTRA_INDEX_URL": "http://reader:opensesame@127.0.0.1:9/simple",
}
"""Where the server finds packages: a directory of this machine, to which `test_packages` adds. The credentials must be
seen nowhere."""
LIMITS = {"TRAINMASTER_LIMITS_HEADER_SECONDS": "5"}
"""Half of the default, because a test waits for it."""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if os.geteuid() != 0:
        pytest.skip("tenants have walls only where the server runs as root")
    with running_site(tmp_path_factory.mktemp("attacked") / "home", environ=PACKAGES | LIMITS) as site:
        yield site
        assert site.is_alive()
        assert "Traceback" not in site.server.log, site.server.log[-4000:]
