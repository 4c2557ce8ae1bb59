"""Binds Pods to the one local node."""
