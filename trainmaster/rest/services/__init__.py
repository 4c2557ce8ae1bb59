"""What the routes call: plain functions and classes on a `Client`, independent of HTTP and the web framework."""
