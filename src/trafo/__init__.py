"""trafo: from raw text to a trained, measured and served Transformer on your own machine."""

__version__ = "0.1.0"
