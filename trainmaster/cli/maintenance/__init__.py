"""Draining the machine of a home, by a command and when systemd shuts it down."""
