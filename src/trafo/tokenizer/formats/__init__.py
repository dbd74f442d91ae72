"""Tokenizers in and out of files: trafo's own folder, GPT-2, Hugging Face, tiktoken."""
