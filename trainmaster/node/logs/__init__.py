"""Reads container logs, which shims write."""
