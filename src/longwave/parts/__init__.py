"""Stateless furniture that mixers and models share: norms, positions, feature maps, matrices, initialisers."""
