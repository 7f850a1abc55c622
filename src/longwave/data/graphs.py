"""Citation graphs: papers, the words in them, and who cites whom (Cora and Citeseer, in the split of Planetoid)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longwave.errors import UserError

FIELDS = ("feat_row", "feat_col", "n_nodes", "n_feat", "edges", "label", "train_idx", "val_idx", "test_idx")


@dataclass(frozen=True)
class Citations:
    nodes: NDArray[np.float32]  # [N, words]: 1 where a paper has a word
    edges: NDArray[np.float32]  # [N, N]: 1 where one cites the other, either way
    label: NDArray[np.int64]  # the field of each; -1: not known
    train: NDArray[np.int64]  # which papers train, and so on
    valid: NDArray[np.int64]
    test: NDArray[np.int64]


def citations(where: str) -> Citations:
    """From a cora.npz or citeseer.npz of sparse features and edges."""
    path = Path(where).expanduser()
    try:
        with np.load(path, allow_pickle=False) as held:
            row, column, n_nodes, n_words, pairs, label, train, valid, test = (held[name] for name in FIELDS)
        nodes = np.zeros((int(n_nodes), int(n_words)), np.float32)
        edges = np.zeros((int(n_nodes), int(n_nodes)), np.float32)
        nodes[row, column] = 1
        edges[pairs[:, 0], pairs[:, 1]] = edges[pairs[:, 1], pairs[:, 0]] = 1
    except (OSError, ValueError, KeyError, EOFError, IndexError, TypeError) as problem:
        raise UserError(f"{path} must be an npz file of {', '.join(FIELDS)}: {problem}") from problem
    return Citations(nodes, edges, *(each.astype(np.int64) for each in (label, train, valid, test)))
