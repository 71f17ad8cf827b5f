"""The parts of the operating system that trainerd needs: durable files, threads, forks."""
