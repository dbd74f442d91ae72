"""What a tokenizer does to a text: measure it, then show it.

report = measure(Tokenizer.load("my-tokenizer"), "books.txt")
report.total.bytes_per_token
"""

from trafo.tokenizer.report.facts import Report, Token, Totals
from trafo.tokenizer.report.meter import measure

__all__ = ["Report", "Token", "Totals", "measure"]
