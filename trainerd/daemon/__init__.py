"""One process's life: lock, detach, signals, logs, systemd, watchdog."""
