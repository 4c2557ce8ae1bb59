"""The systemd unit that runs the server of a home from boot on. Pure: text from what is known.

What matters in it: `KillMode=process` stops the server and leaves the Pods, whose shims the next start finds again, so
jobs survive a restart and an upgrade; `Delegate` gives the server control groups of its own for limits; a job that runs
out of memory is its own affair (`OOMPolicy=continue`); a wrong setting or a second server is not tried again.
Used by `trainmaster service`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.app.process import DESCRIPTORS

_NOT_AGAIN = "2 5"
"""Exit codes of `trainmaster up`: a wrong setting, another server."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What the unit is about."""

    home: Path
    program: Sequence[str]
    """The command that starts the server in the foreground."""
    path: str
    """PATH of jobs and of the server."""
    system: bool = False
    user: str = ""
    """Who it runs as; only of a system unit."""


def render(unit: Unit) -> str:
    """The text of the unit file."""
    command = " ".join(quote(word) for word in unit.program)
    service = [
        "Type=simple",
        f"ExecStart={command}",
        f"Environment={quote(f'PATH={unit.path}', in_command=False)}",
        "WorkingDirectory=/",
        "# Only the server is stopped: Pods live on, and the next start takes them over.",
        "KillMode=process",
        "TimeoutStopSec=90",
        "Restart=on-failure",
        "RestartSec=2",
        f"RestartPreventExitStatus={_NOT_AGAIN}",
        "# Control groups for the limits of Pods.",
        "Delegate=yes",
        "OOMPolicy=continue",
        "TasksMax=infinity",
        "# Every connection is a descriptor.",
        f"LimitNOFILE={DESCRIPTORS}",
    ]
    if unit.user:
        service.insert(0, f"User={unit.user}")
    lines = [
        "# Written by `trainmaster service install`; `trainmaster service uninstall` removes it.",
        "[Unit]",
        f"Description=Trainmaster control plane of {escape(str(unit.home))}",
        *(["After=network.target"] if unit.system else []),
        "",
        "[Service]",
        *service,
        "",
        "[Install]",
        f"WantedBy={'multi-user.target' if unit.system else 'default.target'}",
        "",
    ]
    return "\n".join(lines)


def escape(text: str) -> str:
    """Percent signs name things in units."""
    return text.replace("%", "%%")


def quote(word: str, *, in_command: bool = True) -> str:
    """One word of a unit; only command lines know variables. ValueError for what no unit can hold."""
    if any(ord(char) < 32 for char in word):
        raise ValueError(f"{word!r} has a control character, which a systemd unit cannot hold")
    plain = escape(word).replace("\\", "\\\\").replace('"', '\\"')
    if in_command:
        plain = plain.replace("$", "$$")
    return f'"{plain}"' if plain != word or any(char in word for char in " '\";") or not word else word
