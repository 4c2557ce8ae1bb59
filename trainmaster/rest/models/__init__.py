"""The shapes of requests and answers. Ours: no Kubernetes type leaks through them by accident."""
