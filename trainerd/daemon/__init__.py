"""The life of one process: lock, detach, signals, logs, systemd, watchdog."""
