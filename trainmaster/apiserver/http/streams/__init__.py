"""exec, attach and port-forward: sessions of byte streams between a client and a Pod."""
