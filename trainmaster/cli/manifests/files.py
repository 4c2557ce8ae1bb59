"""Reads manifests from files, directories and standard input. Used by `check`, `submit` and `convert`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.jobs.submission.documents import ManifestDocument, parse
from trainmaster.jobs.submission.ordering import Manifest, order_manifests

_LARGEST = 20 << 20
_SUFFIXES = (".yaml", ".yml", ".json")


def add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--file",
        action="append",
        required=True,
        metavar="FILE",
        help="a manifest, a directory of manifests, or - for standard input; repeatable",
    )


def read_documents(context: CommandContext, names: Sequence[str]) -> list[ManifestDocument]:
    """Failure with exit code 2 for files that cannot be read."""
    return [document for name in names for source, text in _read(context, name) for document in parse(source, text)]


def _read(context: CommandContext, name: str) -> Iterator[tuple[str, str]]:
    if name == "-":
        yield "-", context.stdin.read()
        return
    path = Path(name).expanduser()
    if path.is_dir():
        files = sorted(entry for entry in path.iterdir() if entry.suffix in _SUFFIXES and entry.is_file())
        if not files:
            raise exits.Failure(f"{name} has no manifest: no file ends in {', '.join(_SUFFIXES)}", exits.USAGE)
    else:
        files = [path]
    for file in files:
        try:
            if file.stat().st_size > _LARGEST:
                raise exits.Failure(f"{file} has more than {_LARGEST >> 20} MiB: is it a manifest?", exits.USAGE)
            yield str(file), file.read_text()
        except UnicodeDecodeError:
            raise exits.Failure(f"{file} is no text: give a manifest in YAML or JSON", exits.USAGE) from None
        except FileNotFoundError:
            raise exits.Failure(f"{file}: there is no such file", exits.USAGE) from None
        except OSError as error:
            raise exits.Failure(f"{file} cannot be read: {error.strerror}", exits.USAGE) from None


def read_manifests(context: CommandContext, names: Sequence[str]) -> list[Manifest]:
    """The manifests in the order in which they can be created. Raises ManifestError."""
    return order_manifests(read_documents(context, names), ", ".join(names))
