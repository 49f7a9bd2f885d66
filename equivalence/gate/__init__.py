"""Compare what runs found with a committed baseline: whatever got looser fails, one line each."""
