"""The exception of this part."""

from __future__ import annotations


class BundleError(Exception):
    """The code cannot be packed or found; the text says why and what to do about it."""
