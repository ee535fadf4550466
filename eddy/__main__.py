"""Lets `python -m eddy` run the command `eddy`."""

from eddy.cli import main

if __name__ == "__main__":
    main(prog_name="eddy")
