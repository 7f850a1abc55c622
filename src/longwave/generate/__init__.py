"""Generation: logits to tokens, and the one loop for every model that has a state."""
