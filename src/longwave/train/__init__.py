"""Training: a plan, a loop on one screen, and checkpoints from which a run goes on bitwise."""
