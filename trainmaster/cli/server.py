"""Commands that need the server of a home: one connection with the owner's kubeconfig, and errors as one sentence."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.cli.context import Context
from trainmaster.client.contract import Client
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig

T = TypeVar("T")


def call(context: Context, options: argparse.Namespace, work: Callable[[Client], Awaitable[T]]) -> T:
    """Does the work on the running server of the home. Failure with its message when the server refuses."""
    home = context.home(options)
    info = home.find_running()
    if info is None or not info.kubeconfig:
        text = f"no server runs in {home.root}: start it with `trainmaster up --detach`"
        raise exits.Failure(text, exits.NOT_RUNNING)
    kubeconfig = Path(info.kubeconfig)

    async def main() -> T:
        client = HttpClient(load_kubeconfig([kubeconfig]))
        try:
            return await work(client)
        finally:
            for text in client.warnings:
                context.note(f"warning: {text}")
            await client.close()

    try:
        return asyncio.run(main())
    except StatusError as error:
        raise exits.Failure(error.message) from None
    except OSError as error:
        raise exits.Failure(f"the server of {home.root} does not answer: {error}", exits.NOT_READY) from None
