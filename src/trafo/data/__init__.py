"""Ids -> batches; and the text that every machine with Python already has."""
