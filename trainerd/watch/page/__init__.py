"""The watcher's page: HTTP on a port or a unix socket."""
