"""A cache directory for the owner's jobs: writable and lasting, with links to the model files that the owner has."""
