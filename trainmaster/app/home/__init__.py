"""The home: its folder and lock, its credentials, its control socket, backup and restore."""
