"""Changes to this machine: systemd units, the user's kubeconfig, removal of a home."""
