"""Files -> a token file: the ids of a corpus on disk, memory-mapped."""
