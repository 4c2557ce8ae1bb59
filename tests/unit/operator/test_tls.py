"""Certificates in memory."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest

from trainmaster.auth.pki import issue_server_keys
from trainmaster.operator.tls import read_end
from trainmaster.testing.virtual import START, VirtualClock, run_virtual

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("days", [1, 365, 365 * 40])
def test_the_end_of_a_certificate_is_read(days: int) -> None:
    """From 2050 on, times in certificates have another form."""

    async def main() -> None:
        keys = issue_server_keys(["a"], VirtualClock(), days)
        assert read_end(keys.certificate + keys.ca) == START + timedelta(days=days)
        assert read_end(keys.certificate).tzinfo is UTC

    run_virtual(main())


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="certificate"):
        read_end(text)
