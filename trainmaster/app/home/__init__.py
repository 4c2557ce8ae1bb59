"""The home: its directory and lock, its credentials, its control socket, backup and restore."""
