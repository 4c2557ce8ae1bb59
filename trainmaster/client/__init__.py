"""The Client protocol that everything speaks, its HTTP implementation, cache and event recorder."""
