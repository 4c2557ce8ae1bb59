"""Connections, HTTP/1.1 and their limits, the same for every port."""
