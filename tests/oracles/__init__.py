"""What each mixer was compared with: a file a mixer, found because it is there.

The docstring says what the oracle is; `pairs()` yields (what, ours, theirs) in float64: outputs, final states and the
gradients of inputs and parameters, on ragged batches where the oracle is right about them. The oracle is another
library's layer with our weights, or a plain loop written from the paper's equations. `docs/mixers.md` lists the largest
difference.
"""
