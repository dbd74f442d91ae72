"""What the page asks beyond OpenAI's interface: a model's inside, a tokenizer's merges, runs."""
