"""`python -m trainerd` is the `trainerd` command."""

from trainerd.cli import main

if __name__ == "__main__":
    main()
