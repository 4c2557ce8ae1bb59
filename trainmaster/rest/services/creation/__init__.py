"""Creating jobs: validation, names, code and objects."""
