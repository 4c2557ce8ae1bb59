"""Images without a container engine: rules that map an image name to a Python environment, and the environments."""
