"""The REST API, put together."""
