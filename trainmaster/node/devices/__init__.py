"""The machine's GPUs, and the device nodes that containers need for them."""
