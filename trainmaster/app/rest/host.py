"""What the REST API tells administrators about its host: settings and their sources, and what its doctor finds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from dataclasses import asdict

from trainmaster.api.meta import Object
from trainmaster.app.home.folder import Home
from trainmaster.app.settings import Effective, Settings, list_values
from trainmaster.client.contract import Client
from trainmaster.rest.contract import Diagnose

_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
"""In an address such as that of a proxy."""


def list_settings(effective: Effective, groups: Collection[str] = ()) -> list[Object]:
    """Those of the groups, or all. Passwords in addresses are left out."""
    wanted = (one for one in list_values(effective) if not groups or one.key.partition(".")[0] in groups)
    return [{**asdict(one), "value": hide_credentials(one.value)} for one in wanted]


def hide_credentials(value: object) -> object:
    if isinstance(value, list):
        return [hide_credentials(one) for one in value]
    return _CREDENTIALS.sub("***@", value) if isinstance(value, str) else value


def build_home_doctor(home: Home, settings: Settings) -> Diagnose:
    """As `trainmaster doctor` for this home."""

    async def diagnose(_: Client) -> list[Object]:
        # In a thread with a loop of its own: checks read files, and one asks this very server.
        return await asyncio.to_thread(_examine, home, settings)

    return diagnose


def _examine(home: Home, settings: Settings) -> list[Object]:
    from trainmaster.app import doctor  # noqa: PLC0415 - asked for rarely

    return [asdict(line) for line in asyncio.run(doctor.examine(home, settings))]
