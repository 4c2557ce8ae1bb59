"""The machine itself: what it is, how it is doing, and what the Node object says of it."""
