"""Which server a command speaks to, and how one is started in the background."""
