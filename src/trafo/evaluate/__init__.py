"""Metrics: loss, perplexity, bits per byte; BLEU and chrF of translations (without torch)."""
