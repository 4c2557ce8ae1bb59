"""Subresources that the registry alone cannot serve: logs, progress of training, tokens."""
