"""Interruptions of the machine: sleep, shutdown, a cloud, an empty battery. The runs save before that."""
