"""What a tokenizer does to a text: measure it, then show it.

report = measure_tokenizer(Tokenizer.load("my-tokenizer"), "books.txt")
report.total.bytes_per_token
"""

from trafo.tokenizer.report.measure import ListedToken, Report, TextCounts, measure_tokenizer

__all__ = ["ListedToken", "Report", "TextCounts", "measure_tokenizer"]
