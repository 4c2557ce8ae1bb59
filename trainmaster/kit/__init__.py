"""Clock, ids, task scopes, back-off, logs, failpoints. Standard library only, no Kubernetes words."""
