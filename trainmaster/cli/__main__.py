"""`python -m trainmaster.cli`, which `up --detach` runs to start the server without depending on PATH."""

from trainmaster.cli.main import entry

entry()
