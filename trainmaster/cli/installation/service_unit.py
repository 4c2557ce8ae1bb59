"""The text of the systemd unit that runs the server of a home. Pure. Used by `trainmaster service`.

`KillMode=process` stops only the server; the Pods continue and the next start adopts them, so jobs survive restarts and
upgrades. `Delegate` lets the server manage control groups for limits. With `OOMPolicy=continue` a job that runs out of
memory does not stop the unit. The server is not restarted after a wrong setting or if another server is running.

When the machine shuts down, the processes of Pods are killed too. So before it stops the server, systemd calls
`trainmaster service stopping`, which drains the machine if that is so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.app.process import DESCRIPTORS

_NOT_AGAIN = "2 5"
"""Exit codes of `trainmaster up` for which systemd must not restart it: a wrong setting, another server."""
SAVE_SECONDS = 90
"""How long jobs have to save and stop when the machine shuts down. The manager of a user has two minutes for all its
units by default."""
_ABOUT_STOPPING = "# While the machine shuts down: jobs are asked to save, and continue at the next start."
_STOP_SECONDS = 30
"""What the server itself and the command need in addition."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The values of the unit."""

    home: Path
    program: Sequence[str]
    """The command that starts the server in the foreground."""
    path: str
    """PATH of the server and of jobs."""
    system: bool = False
    user: str = ""
    """The user it runs as; only in system units."""
    stopping: Sequence[str] = ()
    """The command to call before the server is stopped."""
    save_seconds: int = SAVE_SECONDS


def render(unit: Unit) -> str:
    """The text of the unit file."""
    service = [
        "Type=simple",
        f"ExecStart={_join(unit.program)}",
        *([_ABOUT_STOPPING, f"ExecStop=-{_join(unit.stopping)}"] if unit.stopping else []),
        f"Environment={quote(f'PATH={unit.path}', in_command=False)}",
        "WorkingDirectory=/",
        "# Only the server is stopped: Pods live on, and the next start takes them over.",
        "KillMode=process",
        f"TimeoutStopSec={unit.save_seconds + _STOP_SECONDS}",
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
        # After D-Bus, so that at a shutdown systemd can still be asked whether it is one.
        *(["After=network.target dbus.socket dbus.service"] if unit.system else []),
        "",
        "[Service]",
        *service,
        "",
        "[Install]",
        f"WantedBy={'multi-user.target' if unit.system else 'default.target'}",
        "",
    ]
    return "\n".join(lines)


def _join(words: Sequence[str]) -> str:
    return " ".join(quote(word) for word in words)


def escape(text: str) -> str:
    """Escapes percent signs, which are specifiers in units."""
    return text.replace("%", "%%")


def quote(word: str, *, in_command: bool = True) -> str:
    """Quotes one word of a unit; `in_command` also escapes variables. ValueError for forbidden characters."""
    if any(ord(char) < 32 for char in word):
        raise ValueError(f"{word!r} has a control character, which a systemd unit cannot hold")
    plain = escape(word).replace("\\", "\\\\").replace('"', '\\"')
    if in_command:
        plain = plain.replace("$", "$$")
    return f'"{plain}"' if plain != word or any(char in word for char in " '\";") or not word else word
