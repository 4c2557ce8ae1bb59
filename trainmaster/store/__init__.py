"""Revisioned log of bytes on SQLite: get, scan, write, watch, compact. Knows no kinds."""
