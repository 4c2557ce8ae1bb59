"""One module per group of paths, each with a `router`; `trainmaster/rest/routes/table.py` lists them.

A route decodes (the framework does it from the types), calls one function of `trainmaster/rest/services/`, and encodes.
"""
