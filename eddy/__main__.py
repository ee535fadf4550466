"""Lets `python -m eddy` do what the command `eddy` does."""

from eddy.cli import main

if __name__ == "__main__":
    main(prog_name="eddy")
