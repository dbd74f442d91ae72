"""Training: a config in, a run's folder out. Read config, build, step, loop in this order."""
