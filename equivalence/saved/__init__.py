"""A model on disk, put under test as an attention function of the sizes that it was made for."""
