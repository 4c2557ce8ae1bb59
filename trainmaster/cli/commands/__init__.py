"""One module per command, with `add_arguments(parser)` and `run(options, context)`; `cli/main.py` lists and loads them.

What several commands share stands one level up.
"""
