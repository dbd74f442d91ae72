"""State <-> files: what a run saves and what other programs read."""
