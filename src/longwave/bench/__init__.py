"""Speed, measured: ours beside what a user would otherwise pick, in one process, interleaved, as ratios of medians."""
