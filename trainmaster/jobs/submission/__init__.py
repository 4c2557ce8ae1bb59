"""Manifests of users: parsed with the place of every field, ordered, and sent to a server."""
