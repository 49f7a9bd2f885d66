"""What a converted graph holds, repeats and moves, counted from its operations and shapes.

Bytes are logical bytes of the graph: not DRAM traffic, not peak memory. A graph is read into a
small structure of its own (``graph``), so that graphs of other formats can be counted too.
"""
