"""Convert torch modules to Core AI, and run them on its CPU runtime, on Linux too."""
