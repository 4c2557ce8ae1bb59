"""The flags of `trainmaster operator install`, `upgrade` and `uninstall`, and the start of each."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.spans import parse_span

if TYPE_CHECKING:
    from trainmaster.cli.installation.cluster.work import InstallationOptions, InstallationWork
    from trainmaster.client.contract import Client

_TIMEOUT = "5m"
_TEXTS = {
    "install": "install the operator with everything that it needs, as the chart does",
    "upgrade": "change an installation to this version, or to other values",
    "uninstall": "remove an installation; jobs, definitions and records stay",
}


def add_actions(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="[ACTION]", required=False, title="actions on a cluster")
    for name, text in _TEXTS.items():
        action = actions.add_parser(name, help=text, description=text)
        _add_place(action)
        if name == "uninstall":
            action.add_argument("--delete-crds", action="store_true", help="also delete the definitions, with all jobs")
            action.add_argument("--yes", action="store_true", help="do not ask")
        else:
            _add_values(action, is_upgrade=name == "upgrade")


def _add_place(parser: argparse.ArgumentParser) -> None:
    # Those of `operator` itself, if they are given before the action.
    parser.add_argument("--kubeconfig", default=argparse.SUPPRESS, metavar="FILE", help="default: as kubectl")
    parser.add_argument("--context", default=argparse.SUPPRESS, metavar="NAME", help="context of the kubeconfig")
    parser.add_argument(
        "-n",
        "--namespace",
        dest="installation_namespace",
        default="trainmaster-system",
        metavar="NAME",
        help="namespace of the installation (default: trainmaster-system)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would be changed")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the Pods")
    parser.add_argument("--wait", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--timeout", default=_TIMEOUT, metavar="SPAN", help=f"for the waiting (default: {_TIMEOUT})")


def _add_values(parser: argparse.ArgumentParser, *, is_upgrade: bool) -> None:
    parser.add_argument(
        "-f",
        "--values",
        dest="value_files",
        action="append",
        default=[],
        metavar="FILE",
        help="values as for the chart (docs/values.md); repeatable",
    )
    parser.add_argument(
        "--set", dest="assignments", action="append", default=[], metavar="KEY=VALUE", help="one value; repeatable"
    )
    parser.add_argument("--force-conflicts", action="store_true", help="take over fields that others have set")
    if is_upgrade:
        parser.add_argument(
            "--reset-values",
            action="store_true",
            help="forget the values of earlier commands (default: they stay, and those of this command are added)",
        )


def run_action(options: argparse.Namespace, context: CommandContext) -> int:
    # Imported here, because `operator` itself needs none of it.
    from trainmaster.api.status import StatusError
    from trainmaster.cli.installation.cluster.applying import install, upgrade
    from trainmaster.cli.installation.cluster.removal import uninstall
    from trainmaster.cli.installation.cluster.work import InstallationWork
    from trainmaster.cli.installation.cluster.writes import RIGHTS, is_about_rights
    from trainmaster.cli.servers.connection import call

    actions: Mapping[str, Callable[[InstallationWork], Awaitable[int]]] = {
        "install": install,
        "upgrade": upgrade,
        "uninstall": uninstall,
    }
    wanted = _read_options(options)
    options.cluster_only = True

    async def act(client: Client) -> int:
        try:
            return await actions[options.action](InstallationWork(client, context, wanted))
        except StatusError as error:
            if not is_about_rights(error):
                raise
            raise exits.Failure(f"{error.message}; {RIGHTS}") from None

    return call(context, options, act)


def _read_options(options: argparse.Namespace) -> InstallationOptions:
    from trainmaster.cli.installation.cluster.work import InstallationOptions

    if options.wait and options.no_wait:
        raise exits.Failure("--wait and --no-wait contradict each other", exits.USAGE)
    try:
        seconds = parse_span(options.timeout)
    except ValueError as error:
        raise exits.Failure(f"--timeout: {error}", exits.USAGE) from None
    return InstallationOptions(
        namespace=options.installation_namespace,
        files=tuple(getattr(options, "value_files", ())),
        assignments=tuple(getattr(options, "assignments", ())),
        reset_values=getattr(options, "reset_values", False),
        seconds=seconds,
        wait=not options.no_wait,
        dry_run=options.dry_run,
        force=getattr(options, "force_conflicts", False),
        delete_definitions=getattr(options, "delete_crds", False),
        yes=getattr(options, "yes", False),
    )
