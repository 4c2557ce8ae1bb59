"""The flags that select a server. Separate from `cli.servers.connection`, which loads a client, because `run` needs
the home earlier."""

from __future__ import annotations

import argparse

from trainmaster.cli.context import add_home


def read_job(text: str) -> str:
    """Accepts NAME, or trainjob.GROUP/NAME as `-o name` and kubectl print it."""
    kind, slash, name = text.partition("/")
    if not slash:
        return text
    # Imported here because this form is rare and `run` has to start fast.
    from trainmaster.jobs.kinds import find_kind

    return name if find_kind(kind.partition(".")[0]) else text


def add_server(parser: argparse.ArgumentParser, *, all_namespaces: bool = False) -> None:
    """Adds --home, --kubeconfig, --context, -n, and -A if `all_namespaces` is set."""
    add_home(parser)
    add_cluster(parser)
    text = "namespace (default: that of the kubeconfig, else default)"
    if all_namespaces:
        add_namespaces(parser, text)
    else:
        parser.add_argument("-n", "--namespace", metavar="NAME", help=text)


def add_namespaces(parser: argparse.ArgumentParser, text: str, default: str | None = None) -> None:
    """Adds -n and -A, of which one can be given."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("-n", "--namespace", default=default, metavar="NAME", help=text)
    group.add_argument("-A", "--all-namespaces", action="store_true", help="all namespaces")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="use this cluster instead of the local server")
    parser.add_argument("--context", default="", metavar="NAME", help="context in that kubeconfig")


def is_cluster(options: argparse.Namespace) -> bool:
    """Whether the options select a cluster instead of the server of a home."""
    return bool(getattr(options, "kubeconfig", "") or getattr(options, "context", ""))
