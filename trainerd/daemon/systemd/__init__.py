"""What systemd asks of a service."""
