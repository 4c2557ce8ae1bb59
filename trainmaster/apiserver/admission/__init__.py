"""The admission plugins, one module each."""
