"""The machine: its hardware, its health, and its Node object."""
