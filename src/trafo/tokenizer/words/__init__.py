"""Text -> words: special tokens first, then the split pattern."""
