"""Automatic settings: sizes that suit the data, the machine and the time; flags override them."""
