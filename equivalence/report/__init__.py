"""Reports of a run: on the terminal, as JSON, and as a script that shows one failure."""
