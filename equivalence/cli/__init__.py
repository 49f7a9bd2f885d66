"""The `equivalence` command."""
