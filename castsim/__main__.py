"""`python -m castsim` is the same as `castsim`."""

from castsim.cli.app import main

if __name__ == "__main__":
    main()
