"""Manifests of the command line: from files, for a server or for none."""
