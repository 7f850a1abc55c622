"""What a layer or a model can do, measured: how far gradients reach, and how far back an answer looks.

Every probe is a command, `longwave profile NAME`, and the function here that gives its numbers.
"""

from longwave.probe.complexity import fit_complexity as fit_complexity
from longwave.probe.gradient import gradient_by_lag as gradient_by_lag
from longwave.probe.hippo import recall as hippo_recall
from longwave.probe.looking import entropy_by_temperature as entropy_by_temperature
from longwave.probe.looking import hull_distance as hull_distance
from longwave.probe.looking import order_blindness as order_blindness
from longwave.probe.paths import count_paths as count_paths
from longwave.probe.recall import points as recall_points

__all__ = [
    "count_paths",
    "entropy_by_temperature",
    "fit_complexity",
    "gradient_by_lag",
    "hippo_recall",
    "hull_distance",
    "order_blindness",
    "recall_points",
]
