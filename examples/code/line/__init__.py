"""A package beside the program: sent with it."""
