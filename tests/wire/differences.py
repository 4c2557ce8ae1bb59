"""Wire tests that one of the two servers cannot pass, by name, each with its reason. Everything else runs on both."""

from __future__ import annotations

ONLY_OURS: dict[str, str] = {}
"""Test or scenario title -> why a real kube-apiserver behaves otherwise."""

ONLY_KUBE: dict[str, str] = {}
"""Test or scenario title -> why our server behaves otherwise."""
