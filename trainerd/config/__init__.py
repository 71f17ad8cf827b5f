"""trainerd.toml: its keys, how it is read, and what of it a checkpoint remembers."""
