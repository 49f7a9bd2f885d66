"""The laws that attention obeys, one file for each family."""
