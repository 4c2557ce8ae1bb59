"""Addresses, names and ports of Pods."""
