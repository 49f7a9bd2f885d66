"""Prove that every way of computing attention computes the same thing."""
