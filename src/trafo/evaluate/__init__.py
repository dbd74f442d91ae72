"""Metrics: loss, perplexity and bits per byte, and BLEU and chrF of translations."""
