"""Composition of the REST API."""
