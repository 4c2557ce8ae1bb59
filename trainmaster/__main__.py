"""`python -m trainmaster` is the command `trainmaster`."""

from __future__ import annotations

from trainmaster.cli.main import entry

if __name__ == "__main__":
    entry()
