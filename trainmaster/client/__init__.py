"""The Client protocol, its HTTP implementation, the watch cache and the event recorder."""
