"""Key/value caches: objects with a history, judged by what they answer along a program."""
