"""Suggested commands, completed with the flags that select the user's cluster. Pure; used by `CommandContext`.

Texts suggest commands as they are for the local server, between backquotes or as a line of its own: "`trainmaster logs
my-job` shows what it printed". A user who gave --kubeconfig or --context needs both there, too.
"""

from __future__ import annotations

import argparse
import re
import shlex

COMMANDS = frozenset(
    {
        *("check", "cleanup", "delete", "describe", "doctor", "exec", "explain", "get", "history", "list", "logs"),
        *("restart", "resume", "run", "runtimes", "submit", "suspend", "top", "wait", "watch"),
    }
)
"""Those that work with any cluster."""
_LOCAL = ("history export", "history purge")
"""Of these commands, what works with a home alone."""
_QUOTED = re.compile(r"`((?:trainmaster|kubectl) [^`]+)`")
_ALONE = re.compile(r"(\s*(?:[a-z ]{1,16}:\s+)?)((?:trainmaster|kubectl) [^`]+?)((?:\s{2,}| +#).*)?")
_CHAIN = " && "
_HAS_FLAGS = re.compile(r"\s--(?:kubeconfig|context)\b")


def read_flags(options: argparse.Namespace) -> str:
    """The flags of a cluster that the user named; "" for the local server and for output that programs read."""
    if getattr(options, "output", "table") not in ("table", "wide", None):
        return ""
    given = (("--kubeconfig", getattr(options, "kubeconfig", "")), ("--context", getattr(options, "context", "")))
    return "".join(f" {flag} {shlex.quote(value)}" for flag, value in given if isinstance(value, str) and value)


def add_flags(line: str, flags: str) -> str:
    """`flags`: from `read_flags`."""
    if not flags or ("trainmaster " not in line and "kubectl " not in line):
        return line
    if alone := _ALONE.fullmatch(line):
        return f"{alone[1]}{_complete(alone[2], flags)}{alone[3] or ''}"
    return _QUOTED.sub(lambda found: f"`{_complete(found[1], flags)}`", line)


def _complete(text: str, flags: str) -> str:
    return _CHAIN.join(_complete_one(command, flags) for command in text.split(_CHAIN))


def _complete_one(command: str, flags: str) -> str:
    program, _, rest = command.partition(" ")
    if program == "trainmaster" and (rest.partition(" ")[0] not in COMMANDS or rest.startswith(_LOCAL)):
        return command
    if program not in ("trainmaster", "kubectl") or _HAS_FLAGS.search(command):
        return command
    head, cut, tail = command.partition(" -- ")
    return f"{head}{flags}{cut}{tail}"
