"""Manifests from files: read, checked for their shape, put in order, tried on a server in memory."""
