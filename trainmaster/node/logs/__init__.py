"""What containers printed: written by shims, read here."""
