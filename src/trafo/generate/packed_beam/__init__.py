"""One step of beam search with kernels compiled for this processor, for float32 on the CPU."""
