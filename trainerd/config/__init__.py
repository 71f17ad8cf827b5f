"""The config, trainerd.toml: its keys, the parser, and the fingerprint that a checkpoint holds."""
