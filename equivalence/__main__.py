"""`python -m equivalence` is the command `equivalence`."""

from equivalence.cli import main

if __name__ == "__main__":
    main()
