"""Bundles: the code of jobs without an image, stored by content in `bundles/` of the home.

`pack` creates a bundle from a directory (ignore files, size limit, stat cache) for `trainmaster run`; `BundleStore`
finds, verifies and deletes bundles; `views` gives a Pod its own writable copy and finds what a program added to it. A
bundle never changes: it is built under a temporary name and renamed when it is complete. Standard library only.
"""

from __future__ import annotations

from trainmaster.bundles.errors import BundleError
from trainmaster.bundles.packing import Bundle, BundleLimits, pack
from trainmaster.bundles.store import BundleStore

__all__ = ["Bundle", "BundleError", "BundleLimits", "BundleStore", "pack"]
