"""What only a cluster needs: operator mode, its manifests, its status server, and the REST API in front of a
cluster."""
