"""Manifests from files: parsed, validated, sorted, and tried on a server in memory."""
