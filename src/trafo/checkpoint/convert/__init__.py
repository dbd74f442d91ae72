"""Weights in and out: Hugging Face folders, llama2.c files, GGUF files.

Every export is read back and compared; the largest difference of logits is stored beside it.
"""
