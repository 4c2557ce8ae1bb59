"""The control plane's side of shims: starting, adopting and communicating with them."""
