"""How long formulations take beside the least that their bytes allow, and what they copy."""
