"""Commands about a job, before it is trained and after: one file each."""
