"""Execute Core ML's intermediate language (MIL) with torch, on any machine.

This is the documented meaning of MIL's operations, as coremltools writes them down. It is *not*
Apple's hardware nor its compiler: what the Neural Engine, the GPU or the CPU of a device make of
the same graph can only be seen there.
"""
