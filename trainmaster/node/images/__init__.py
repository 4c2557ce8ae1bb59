"""Images without a container engine: rules that map an image's name to a Python environment, and the environments."""
