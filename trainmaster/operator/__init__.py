"""What only a cluster needs: operator mode, its manifests, its status server, the REST API before a cluster."""
