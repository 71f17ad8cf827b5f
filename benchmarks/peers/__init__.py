"""The peers: each a program of its own that keeps to one contract (contract.py), in a fresh process."""
