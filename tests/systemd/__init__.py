"""Tests of the service as a person uses it: systemctl, journalctl and kill, on a machine with a real systemd."""
