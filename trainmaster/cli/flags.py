"""Flags for settings, shared by `up`, which uses them, and `config`, which shows their effect."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmaster.app.home.folder import Home
from trainmaster.app.settings import Effective, SettingsError, load
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext

# Flag -> (setting, type, help). Less common settings have no flag.
_FLAGS: dict[str, tuple[str, type, str]] = {
    "--address": ("server.address", str, "IP address to listen on (default 127.0.0.1)"),
    "--port": ("server.port", int, "port to listen on (default 0: a free one, kept for this home)"),
    "--log-level": ("log.level", str, "debug, info, warning or error"),
    "--log-form": ("log.form", str, "text or json"),
}


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="settings file (default: config.toml in the home)")
    for flag, (_, kind, text) in _FLAGS.items():
        parser.add_argument(flag, type=kind, metavar=flag.rpartition("-")[2].upper(), help=text)


def load_settings(options: argparse.Namespace, context: CommandContext, home: Home) -> Effective:
    flags: dict[str, tuple[str, object]] = {}
    for flag, (key, _, _) in _FLAGS.items():
        value = getattr(options, flag.lstrip("-").replace("-", "_"), None)
        if value is not None:
            flags[key] = (flag, value)
    named = getattr(options, "config", None) or context.environ.get("TRAINMASTER_CONFIG")
    file = Path(named).expanduser() if named else home.config
    try:
        return load(file, context.environ, flags, file_required=bool(named))
    except SettingsError as error:
        raise exits.Failure(str(error), exits.USAGE) from None


def repeat_flags(options: argparse.Namespace) -> list[str]:
    """The given flags as arguments for a child process."""
    repeated = []
    for flag in ("--config", *_FLAGS):
        value = getattr(options, flag.lstrip("-").replace("-", "_"))
        if value is not None:
            text = str(Path(value).expanduser().absolute()) if flag == "--config" else str(value)
            repeated += [flag, text]
    return repeated
