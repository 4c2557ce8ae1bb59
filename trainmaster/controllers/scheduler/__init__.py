"""Binds Pods to the one local node. A reconciler like the others."""
