"""Clock, ids, task scopes, back-off, logs, metrics and failpoints. Standard library only; nothing specific to
Kubernetes."""
