"""What trainerd needs of the operating system: durable files, threads, forks."""
