"""What a report says about where it was made (`equivalence/environment.py`)."""

from equivalence.environment import environment, processor

__all__ = ["environment", "processor"]
