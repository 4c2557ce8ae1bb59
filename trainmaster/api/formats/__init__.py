"""Texts and numbers of the wire: quantities, selectors, patterns, YAML, protobuf."""
