"""Request and response bodies. Our own, so that no Kubernetes type is exposed by accident."""
