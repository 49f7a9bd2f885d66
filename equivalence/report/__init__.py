"""Reports of a run: terminal, JSON, HTML."""
