"""Connecting to the server of a command, and starting one in the background."""
