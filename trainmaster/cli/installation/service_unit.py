"""The text of the systemd unit that runs the server of a home. Pure. Used by `trainmaster service`.

`KillMode=process` stops only the server; the Pods continue and the next start adopts them, so jobs survive restarts and
upgrades. `Delegate` lets the server manage control groups for limits. With `OOMPolicy=continue` a job that runs out of
memory does not stop the unit. The server is not restarted after a wrong setting or if another server is running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.app.process import DESCRIPTORS

_NOT_AGAIN = "2 5"
"""Exit codes of `trainmaster up` for which systemd must not restart it: a wrong setting, another server."""


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
