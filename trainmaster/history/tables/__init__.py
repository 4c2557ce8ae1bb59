"""The tables of the archive's file."""
