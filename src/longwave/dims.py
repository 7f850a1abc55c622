"""The one legend of shapes: what a letter in a shape means, everywhere in the package.

Public signatures carry their shapes (`Float[Tensor, "B T D"]`); the tests check them on every call, and that every
letter stands in this legend.
"""

LEGEND = {
    "B": "batch: rows, each a sequence of its own",
    "T": "time: tokens of this piece",
    "S": "source: keys or positions that can be seen",
    "D": "model width, or channels",
    "H": "heads",
    "G": "groups of heads that share keys and values (G divides H)",
    "K": "key width of a head",
    "V": "value width of a head",
    "N": "state size",
    "W": "window: taps of a short filter",
    "M": "memory: tokens that a window keeps",
    "L": "length of a long filter",
    "C": "classes",
    "P": "vocabulary",
    "I": "input width",
}
