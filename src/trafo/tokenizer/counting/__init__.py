"""Words -> how often each occurs, in parallel, on disk when it must be."""
