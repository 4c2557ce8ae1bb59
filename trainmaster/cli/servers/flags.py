"""The flags that say which server a command is for. Apart from `cli.servers.connection`, which loads a client:
`run` wants to know the home before it has loaded one."""

from __future__ import annotations

import argparse

from trainmaster.cli.context import add_home


def read_job(text: str) -> str:
    """The name of a job as it is typed, or as `-o name` and kubectl print it: trainjob.GROUP/NAME."""
    kind, slash, name = text.partition("/")
    if not slash:
        return text
    # Loaded for the rare case: `run` has other things to load first.
    from trainmaster.jobs.kinds import find_kind

    return name if find_kind(kind.partition(".")[0]) else text


def add_server(parser: argparse.ArgumentParser, *, all_namespaces: bool = False) -> None:
    """--home, --kubeconfig, --context, -n, and -A where all namespaces make sense."""
    add_home(parser)
    add_cluster(parser)
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "-n", "--namespace", metavar="NAME", help="namespace (default: that of the kubeconfig, else default)"
    )
    if all_namespaces:
        group.add_argument("-A", "--all-namespaces", action="store_true", help="all namespaces")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="use this cluster instead of the local server")
    parser.add_argument("--context", default="", metavar="NAME", help="context in that kubeconfig")


def is_cluster(options: argparse.Namespace) -> bool:
    """Whether a cluster was named, and not the server of a home."""
    return bool(getattr(options, "kubeconfig", "") or getattr(options, "context", ""))
