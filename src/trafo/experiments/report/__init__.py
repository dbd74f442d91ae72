"""What an experiment has shown, as Markdown, as one HTML file, as CSV and as PNGs."""
