"""Parsers of wire formats: quantities, selectors, patterns, YAML, protobuf."""
