"""JobSet controller: pure passes over a small world."""
