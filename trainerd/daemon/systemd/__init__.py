"""The service's side of systemd."""
