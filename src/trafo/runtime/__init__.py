"""Facts and services of the running process: console, progress, safe writing, memory, seed."""
