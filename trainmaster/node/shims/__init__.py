"""The control plane's side of shims: started, found again, spoken to."""
