"""Checkpoints of jobs, also of deleted ones: where they are, whether they are complete, which are kept.

`reading` lists them and `verifying` reads all of their content; `keeping` decides which to remove. `scanning` finds the
files, `grouping` tells by rule which of them are a checkpoint, `formats/` what is wrong with one. All of it was written
by programs of tenants: no link is followed, nothing but regular files is opened, nothing is unpickled, and everything
is read within bounds. All of it blocks.
"""
