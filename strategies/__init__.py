"""Hypothesis strategies: what is drawn, never how it is judged."""

if __name__ != "equivalence.strategies":
    raise ImportError(
        f"this folder is the package equivalence.strategies and was imported as {__name__}: "
        "write `import equivalence.strategies` or `from equivalence import strategies`"
    )
