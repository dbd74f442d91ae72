"""The verbs of `trafo tokenizer`."""
