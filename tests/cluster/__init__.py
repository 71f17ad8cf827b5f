"""Several workers that train one model: real processes on this machine, a real Slurm, two machines. `make
cluster-test`."""
