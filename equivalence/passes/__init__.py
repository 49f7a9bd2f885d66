"""Changes to a converted graph, each held to the graph before it."""
