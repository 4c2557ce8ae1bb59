"""Generated attacks: a grammar, a mutator, a corpus of what once broke something, and a judge. See `tools/fuzz.py`."""
