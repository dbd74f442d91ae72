"""`trafo account`: what models cost."""
