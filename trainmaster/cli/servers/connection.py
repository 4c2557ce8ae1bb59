"""Connects commands to a server, that of a home or any cluster, and turns its errors into one sentence.

`add_server` adds the shared flags to a command. After `get_server` or `call`, `options.namespace` is the namespace to
use: "" for all (-A), else the given one, else the kubeconfig's.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.servers.absent import explain_absent
from trainmaster.cli.servers.flags import add_cluster as add_cluster
from trainmaster.cli.servers.flags import add_server as add_server
from trainmaster.cli.servers.flags import is_cluster as is_cluster
from trainmaster.client.contract import Client
from trainmaster.client.http import HttpClient, Unreachable
from trainmaster.client.kubeconfig import ClusterConfig, ConfigError, choose_config, load_kubeconfig

T = TypeVar("T")


def call(context: CommandContext, options: argparse.Namespace, work: Callable[[Client], Awaitable[T]]) -> T:
    """Runs `work` with a client. Failure with the server's message if it refuses."""
    config = get_server(context, options)

    async def main() -> T:
        client = HttpClient(config)
        try:
            return await work(client)
        except exits.MissingJob as missing:
            if not is_cluster(options):
                raise
            from trainmaster.cli.jobs import explain_deleted
            from trainmaster.cli.servers.cluster_records import find_record

            found = await find_record(client, missing.namespace, missing.name)
            raise missing if found is None else explain_deleted(missing, found.record) from None
        finally:
            for text in client.warnings:
                context.note(f"warning: {text}")
            await client.close()

    try:
        if context.serve is not None:
            result: T = context.serve(work)
            return result
        return asyncio.run(main())
    except exits.MissingJob as missing:
        # Imported here because most names exist.
        from trainmaster.cli.jobs import explain_missing

        raise explain_missing(options, context, missing) from None
    except StatusError as error:
        raise explain(error, config, options) from None
    except ConfigError as error:
        raise exits.Failure(str(error)) from None
    except BrokenPipeError:
        # Not the server's: the reader has closed the pipe, as in `trainmaster list | head`.
        raise
    except OSError as error:
        raise exits.Failure(f"{config.server} does not answer: {error}", exits.NOT_READY) from None


def get_server(context: CommandContext, options: argparse.Namespace) -> ClusterConfig:
    config = _get_config(context, options)
    if getattr(options, "all_namespaces", False):
        options.namespace = ""
    elif getattr(options, "namespace", "") is None:
        options.namespace = config.namespace
    return config


def _get_config(context: CommandContext, options: argparse.Namespace) -> ClusterConfig:
    if context.serve is not None:
        return ClusterConfig("in-process")
    try:
        if is_cluster(options):
            home = Path(context.environ["HOME"]) if context.environ.get("HOME") else None
            return choose_config(path=options.kubeconfig, context=options.context, environ=context.environ, home=home)
        home_ = context.home(options)
        info = home_.find_running()
        if info is None or not info.kubeconfig:
            raise exits.Failure(explain_absent(home_, getattr(options, "home", "")), exits.NOT_RUNNING)
        return load_kubeconfig([Path(info.kubeconfig)])
    except ConfigError as error:
        raise exits.Failure(str(error)) from None


def explain(error: StatusError, config: ClusterConfig, options: argparse.Namespace) -> exits.Failure:
    """The error as one sentence, with a suggested command if there is one."""
    text = error.message
    kubectl = f"kubectl --kubeconfig {options.kubeconfig}" if getattr(options, "kubeconfig", "") else "kubectl"
    if isinstance(error, Unreachable):
        hint = (
            f"`{kubectl} version` says whether it can be reached" if is_cluster(options) else "see `trainmaster status`"
        )
        if "certificate" in text.lower():
            hint = "is the kubeconfig of an older server? `trainmaster kubeconfig` prints the one that is valid now"
        return exits.Failure(f"{config.server} does not answer: {text}; {hint}", exits.NOT_READY)
    if error.code == 401:
        text += ": the server does not know these credentials; `trainmaster kubeconfig` prints the path of valid ones"
    elif error.code == 403:
        text += f"; `{kubectl} auth can-i --list` shows what you may do"
    return exits.Failure(text, exits.NOT_FOUND if error.code == 404 else exits.FAILED)
