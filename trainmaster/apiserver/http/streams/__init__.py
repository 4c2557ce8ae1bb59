"""exec, attach and port-forward: a request becomes a session of byte streams between a client and a Pod."""
