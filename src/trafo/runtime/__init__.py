"""Services of the running process: console, progress, atomic writes, threads, the machine."""
