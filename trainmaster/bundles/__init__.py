"""Code without an image: directories of the user's files, kept by their content below `bundles/` of the home.

`pack` makes one from a directory (ignore files, size limit, stat cache) and is what `trainmaster run` calls;
`BundleStore` finds, checks and forgets them; `views` gives a Pod its own writable view and finds what a program added
to it. A bundle never changes: it is made under another name and renamed when it is whole. Standard library only.
"""

from __future__ import annotations

from trainmaster.bundles.errors import BundleError
from trainmaster.bundles.packing import Bundle, BundleLimits, pack
from trainmaster.bundles.store import BundleStore

__all__ = ["Bundle", "BundleError", "BundleLimits", "BundleStore", "pack"]
