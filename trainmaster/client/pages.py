"""Reading a list page by page, so that neither side holds all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from trainmaster.api.meta import GVR
from trainmaster.client.contract import Client, ListOptions, ObjectList


async def read_pages(client: Client, gvr: GVR, namespace: str, options: ListOptions) -> AsyncIterator[ObjectList]:
    """All pages, each of `options.limit` objects. Raises whatever `list` raises, also between two pages."""
    while True:
        page = await client.list(gvr, namespace, options)
        yield page
        if not page.continue_token:
            return
        options = replace(options, continue_token=page.continue_token)
