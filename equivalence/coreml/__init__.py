"""Convert torch modules with coremltools, and run what comes out.

On Linux the graph is evaluated by ``equivalence.mil``: MIL's documented meaning, and not Apple's
hardware. Only ``equivalence.coreml.device`` runs a model on a device, and it needs macOS.
"""
