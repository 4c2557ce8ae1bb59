"""The one error of this part."""

from __future__ import annotations


class BundleError(Exception):
    """The code cannot be packed or found; the text says what is wrong and what to do about it."""
