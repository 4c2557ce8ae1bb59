"""The flags that select a server. Separate from `cli.servers.connection`, which loads a client, because `run` needs
the home earlier."""

from __future__ import annotations

import argparse

from trainmaster.cli.context import add_home


def read_job(text: str) -> str:
    """Accepts NAME, and KIND/NAME or KIND.GROUP/NAME as `-o name` and kubectl print it. Returns NAME or KIND/NAME."""
    word, slash, name = text.partition("/")
    return f"{read_kind(word)}/{name}" if slash else text


def read_kind(text: str) -> str:
    """The singular name of the kind; "" if none is given."""
    if not text:
        return text
    # Imported here because kinds are rarely given and `run` has to start fast.
    from trainmaster.jobs.kinds import split_reference

    try:
        model, _ = split_reference(f"{text}/")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    assert model is not None, "it was given"
    return model.gvr.plural.removesuffix("s")


def add_kind(parser: argparse.ArgumentParser, text: str = "kind, if jobs of several kinds have the name") -> None:
    """Adds -k, which `apply_kind` puts before the names of jobs."""
    parser.add_argument("-k", "--kind", type=read_kind, default="", metavar="KIND", help=text)


def apply_kind(options: argparse.Namespace) -> None:
    """Turns NAME into KIND/NAME where -k is given."""
    kind = getattr(options, "kind", "")
    for field in ("names", "name", "job") if kind else ():
        given = getattr(options, field, None)
        if isinstance(given, str):
            setattr(options, field, _join(kind, given))
        elif given:
            setattr(options, field, [_join(kind, name) for name in given])


def _join(kind: str, name: str) -> str:
    return name if "/" in name or not name else f"{kind}/{name}"


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
    named = getattr(options, "kubeconfig", "") or getattr(options, "context", "")
    return bool(named or getattr(options, "cluster_only", False))
