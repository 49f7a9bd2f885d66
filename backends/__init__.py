"""Backends: who computes, one small file for each runtime."""

if __name__ != "equivalence.backends":
    raise ImportError(
        f"this folder is the package equivalence.backends and was imported as {__name__}: "
        "write `import equivalence.backends` or `from equivalence import backends`"
    )
