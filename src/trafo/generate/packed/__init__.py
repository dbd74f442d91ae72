"""One step of the engine with kernels compiled for this processor, float32 or int8 weights."""
