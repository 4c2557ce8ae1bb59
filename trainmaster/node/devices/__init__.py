"""GPUs of the machine, and what a container needs of them."""
