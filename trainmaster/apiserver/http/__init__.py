"""The Kubernetes API over HTTP/1.1: protocol, routes, negotiation, handlers. `server.ApiServer` combines them."""
