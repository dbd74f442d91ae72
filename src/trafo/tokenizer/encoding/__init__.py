"""Words -> token ids."""
