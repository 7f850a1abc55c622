"""Where tokens come from: files of text, the embedded corpus, and the order in which training sees them."""
