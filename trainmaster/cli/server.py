"""Commands that need a server: that of a home with the owner's kubeconfig, or any cluster; errors as one sentence."""

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
from trainmaster.client.kubeconfig import ClusterConfig, ConfigError, find_config, load_kubeconfig

T = TypeVar("T")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="a cluster, instead of the server of a home")
    parser.add_argument("--context", default="", metavar="NAME", help="context of that kubeconfig")


def call(context: Context, options: argparse.Namespace, work: Callable[[Client], Awaitable[T]]) -> T:
    """Does the work on the server. Failure with its message when the server refuses."""
    config = find_server(context, options)

    async def main() -> T:
        client = HttpClient(config)
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
        raise exits.Failure(f"{config.server} does not answer: {error}", exits.NOT_READY) from None


def find_server(context: Context, options: argparse.Namespace) -> ClusterConfig:
    try:
        if getattr(options, "kubeconfig", "") or getattr(options, "context", ""):
            home = Path(context.environ["HOME"]) if context.environ.get("HOME") else None
            return find_config(path=options.kubeconfig, context=options.context, environ=context.environ, home=home)
        home_ = context.home(options)
        info = home_.find_running()
        if info is None or not info.kubeconfig:
            text = f"no server runs in {home_.root}: start it with `trainmaster up --detach`"
            raise exits.Failure(text, exits.NOT_RUNNING)
        return load_kubeconfig([Path(info.kubeconfig)])
    except ConfigError as error:
        raise exits.Failure(str(error)) from None
