"""Questions that a black box answers in a few calls."""
