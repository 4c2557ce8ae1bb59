"""Training jobs, independent of servers and user interfaces: models of their objects, and everything derived from
them."""
