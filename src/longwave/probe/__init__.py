"""What a layer or a model can do, measured: how far gradients reach, and how far back an answer looks."""
