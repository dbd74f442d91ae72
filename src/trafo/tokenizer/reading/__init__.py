"""Files of any kind -> chunks of text that can be worked on apart."""
