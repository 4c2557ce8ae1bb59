"""`python -m trainmaster.cli`: how `up --detach` starts the server without depending on PATH."""

from trainmaster.cli.main import entry

entry()
