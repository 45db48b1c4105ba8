"""`python -m dralloc` is the command `dralloc`."""

from dralloc.cli.main import main

if __name__ == "__main__":
    main()
