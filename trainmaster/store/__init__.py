"""A revisioned log of bytes on SQLite: get, scan, write, watch, compact. Independent of kinds."""
