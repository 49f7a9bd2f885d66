"""How much of its bound each backend really uses, with a confidence, in a table to be reviewed."""
