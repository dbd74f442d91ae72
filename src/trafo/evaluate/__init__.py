"""Metrics: loss, perplexity, bits per byte; BLEU and chrF of translations.

The scores of text (`bleu`, `chrf`, `corpus`) import no torch.
"""
