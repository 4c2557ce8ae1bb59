"""The Kubernetes-compatible API on top of the store: verbs, admission, watch, garbage collection, HTTP."""
