"""Logs that are read anywhere: a window at the end, at a time or at a line, and a search over everything.

`stored` reads one log, `merged` all logs of a job as one, `searching` finds lines in them. Everything here blocks, so
callers use threads.
"""
