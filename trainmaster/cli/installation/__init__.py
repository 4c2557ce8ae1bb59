"""What commands do to this machine: systemd units, a person's kubeconfig, removing a home."""
