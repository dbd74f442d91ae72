"""Word counts -> merges, also when the words do not fit into memory."""
