"""Subresources that the registry alone cannot serve: logs, training progress, tokens."""
