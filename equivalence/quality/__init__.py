"""What it costs to change a model's key/value heads, measured on a model that is trained here."""
