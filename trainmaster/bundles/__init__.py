"""Bundles: the code of jobs without an image, stored by content in `bundles/` of the home.

`packing` creates a bundle from a directory (ignore files, size limit, stat cache) for `trainmaster run`; `store`
finds, verifies and deletes bundles; `views` gives a Pod its own writable copy and finds what a program added to it. A
bundle never changes: it is built under a temporary name and renamed when it is complete. Standard library only.
"""
