"""What the routes call: plain functions and classes on a `Client`, without a word of HTTP or of the web framework."""
