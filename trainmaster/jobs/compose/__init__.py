"""Compiles a request into the objects to create: shared by `run` and both REST APIs."""
