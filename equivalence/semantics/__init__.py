"""What runtimes mean by the same words: one question for each point on which they may differ."""
