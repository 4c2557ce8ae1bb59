"""Volumes of Pods as directories of this machine: one module per kind, combined by `creation`."""
