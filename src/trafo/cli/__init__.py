"""The `trafo` command: one small file per verb."""
