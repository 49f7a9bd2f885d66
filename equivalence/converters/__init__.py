"""Converters under test: a torch module in, a graph that computes the same thing out."""
