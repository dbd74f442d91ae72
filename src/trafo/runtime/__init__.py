"""Services of the running process: console, progress, atomic writes, memory, seed."""
