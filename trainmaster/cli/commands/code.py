"""The code of jobs without an image: pack a directory, list the stored bundles.

`trainmaster run` does this automatically. For your own manifests, `pack` prints the digest:

  volumes:
  - name: code
    csi: {driver: code.trainmaster.dev, volumeAttributes: {digest: "sha256:..."}}

  trainmaster code pack .
  trainmaster code list
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmaster.api import code as words
from trainmaster.app.home.folder import HomeError
from trainmaster.bundles.errors import BundleError
from trainmaster.bundles.packing import BundleLimits, pack
from trainmaster.bundles.store import BundleStore
from trainmaster.bundles.walking import format_bytes
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home, add_output
from trainmaster.cli.output import print_data, print_table
from trainmaster.cli.spans import parse_size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    packing = commands.add_parser("pack", help="store a snapshot of a directory, and print its digest")
    packing.add_argument(
        "directory", nargs="?", default=".", metavar="DIR", help="directory (default: the current one)"
    )
    packing.add_argument(
        "--code-limit",
        type=parse_size,
        default=BundleLimits().bytes,
        metavar="SIZE",
        help="maximum size (default: 1Gi)",
    )
    listing = commands.add_parser("list", help="list the stored bundles")
    for command in (packing, listing):
        add_home(command)
        add_output(command)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    return _pack(options, context) if options.action == "pack" else _list(options, context)


def _pack(options: argparse.Namespace, context: CommandContext) -> int:
    home = context.home(options)
    home.prepare()
    try:
        bundle = pack(Path(options.directory), home.bundles, BundleLimits(bytes=options.code_limit))
    except BundleError as error:
        raise exits.Failure(str(error)) from None
    if options.output != "table":
        data = {"digest": bundle.digest, "files": bundle.files, "bytes": bundle.bytes}
        said = words.build_annotations(bundle.digest, bundle.git_commit, bundle.git_dirty)
        print_data(context, {**data, "annotations": said, "volume": words.build_volume(bundle.digest)}, options.output)
        return exits.OK
    context.say(bundle.digest)
    commit = f", commit {bundle.git_commit[:12]}" if bundle.git_commit else ""
    changed = " with changes" if bundle.git_dirty else ""
    files = "1 file" if bundle.files == 1 else f"{bundle.files:,} files"
    context.note(f"{files}, {format_bytes(bundle.bytes)}{commit}{changed}")
    return exits.OK


def _list(options: argparse.Namespace, context: CommandContext) -> int:
    store = BundleStore(context.home(options).bundles)
    try:
        found = [stored for digest in store.list_digests() if (stored := store.find(digest)) is not None]
    except PermissionError as error:
        raise HomeError(f"{store.root} cannot be read: {error.strerror}: is it yours?") from None
    if options.output != "table":
        data = [{"digest": stored.digest, "files": stored.files, "bytes": stored.bytes} for stored in found]
        print_data(context, data, options.output)
    elif not found:
        context.note("no code is kept: `trainmaster run` and `trainmaster code pack` keep some")
    else:
        rows = [(stored.digest, str(stored.files), format_bytes(stored.bytes)) for stored in found]
        print_table(context, ("DIGEST", "FILES", "SIZE"), rows)
    return exits.OK
