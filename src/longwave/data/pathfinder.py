"""Pathfinder images: two long dashed curves, shorter dashed ones between them, and two dots. Are the dots the two ends
of one curve (1), or an end of each (0)?

After Linsley et al. 2018 and Tay et al. 2021, section 2.2.5, with a generator of our own: many images at once. Curves
are random walks that turn smoothly; one that comes too near to another, to itself or to the edge is drawn again. How
far apart the dots are tells nothing: in an image of either label both answers would stand equally far apart.
"""

import itertools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longwave.errors import UserError

Floats = NDArray[np.float64]
DASH, GAP, CLEAR, WIDTH = 2.0, 1.3, 3.6, 0.9  # pixels: a dash, the gap behind it, between curves, of a line
DOT, MARGIN = 1.5, 2.5
ALIKE = 1.5  # pixels by which the two distances between dots may differ
CELLS = 2  # a pixel, of the map of what is taken
TRIES, AT_ONCE = 40, 8  # rounds of so many curves, of which the first that fits is taken
ROUND = 512  # images begun at once
FETCH = "lra_release.gz is at storage.googleapis.com/long-range-arena; give its pathfinder32/curv_contour_length_14"
BARREN = 4  # rounds an image, when curves are too many for it


def pictures(
    random: np.random.Generator, count: int, size: int, dashes: int, distractors: int
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Dashes [count, dashes in all, 2 ends, 2], dots [count, 2, 2] and labels, half of each."""
    lengths = [dashes, dashes] + [max(2, dashes // 3)] * distractors
    parts: list[Floats] = []
    for i in itertools.count():
        parts.append(_suitable(_curves(random, ROUND, size, lengths), dashes))
        made = sum(map(len, parts))
        if made >= count:
            break
        if i >= BARREN * (made + 1):
            raise UserError(f"curves of {dashes} dashes and {distractors} shorter ones hardly ever fit into "
                            f"{size} x {size} pixels")  # fmt: skip
    found = np.concatenate(parts)[:count]
    label = random.permutation(count) % 2
    ends = np.where(label[:, None] == 1, found[:, dashes - 1, 1], found[:, 2 * dashes - 1, 1])
    return found, np.stack([found[:, 0, 0], ends], 1), label


def _suitable(found: Floats, dashes: int) -> Floats:
    """Those whose two answers look alike, the second curve turned round where that helps."""
    found = found[~np.isnan(found).any((1, 2, 3))]
    second = found[:, dashes : 2 * dashes]
    own = np.linalg.norm(found[:, 0, 0] - found[:, dashes - 1, 1], axis=-1)
    far, near = (np.abs(np.linalg.norm(found[:, 0, 0] - end, axis=-1) - own) for end in (second[:, -1, 1],
                                                                                      second[:, 0, 0]))  # fmt: skip
    found[:, dashes : 2 * dashes] = np.where((near < far)[:, None, None, None], second[:, ::-1, ::-1], second)
    return found[(np.minimum(far, near) < ALIKE) & (own > 2 * DOT + 3)]


def draw(lines: Floats, dots: Floats, size: int, scale: int = 1) -> NDArray[np.uint8]:
    """Images [count, size * scale, size * scale]: how much of each pixel is covered, softened over one pixel."""
    n = size * scale
    out = np.zeros((len(lines), n, n), np.float32)
    dashes = lines.reshape(-1, 2, 2)
    points = np.repeat(dots.reshape(-1, 1, 2), 2, 1)
    for segments, radius, light in ((dashes, WIDTH / 2, 0.8), (points, DOT, 1.0)):
        image = np.repeat(np.arange(len(lines)), len(segments) // len(lines))
        reach = int(np.ceil((DASH / 2 + radius + 1) * scale))
        window = np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * 2, indexing="ij"), -1).reshape(-1, 2)
        cells = (segments.mean(1) * scale).astype(int)[:, None] + window
        offset = (cells + 0.5) / scale - segments[:, :1]
        along = segments[:, 1:] - segments[:, :1]
        near = ((offset * along).sum(-1) / np.maximum((along**2).sum(-1), 1e-9)).clip(0, 1)
        away = np.linalg.norm(offset - near[..., None] * along, axis=-1)
        covered = light * np.clip((radius - away) * scale + 0.5, 0, 1)
        inside = ((cells >= 0) & (cells < n)).all(-1)
        at = (np.broadcast_to(image[:, None], inside.shape)[inside], *cells[inside].T)
        np.maximum.at(out, at, covered[inside].astype(np.float32))
    return (255 * out).astype(np.uint8)


def _curves(random: np.random.Generator, count: int, size: int, lengths: list[int]) -> Floats:
    """Dashes of `count` images; NaN where a curve found no room."""
    taken = np.zeros((count, CELLS * size, CELLS * size), bool)
    out = np.full((count, sum(lengths), 2, 2), np.nan)
    todo, at = np.arange(count), 0
    for length in lengths:
        left = todo
        for _ in range(TRIES):
            walks = _walks(random, len(left) * AT_ONCE, length, size)
            free = _fits(walks, taken, np.repeat(left, AT_ONCE), size).reshape(len(left), AT_ONCE)
            lucky = free.any(1)
            chosen = walks.reshape(len(left), AT_ONCE, length, 2, 2)[np.arange(len(left)), free.argmax(1)][lucky]
            out[left[lucky], at : at + length] = chosen
            _take(taken, left[lucky], chosen)
            left = left[~lucky]
            if not len(left):
                break
        todo, at = np.setdiff1d(todo, left), at + length
    return out


def _walks(random: np.random.Generator, count: int, length: int, size: int) -> Floats:
    bend = random.normal(0, 0.12, (count, length)).cumsum(1).clip(-0.4, 0.4)
    angle = random.uniform(0, 2 * np.pi, (count, 1)) + bend.cumsum(1)
    ahead = np.stack([np.cos(angle), np.sin(angle)], -1)
    start = random.uniform(MARGIN, size - MARGIN, (count, 1, 2)) + (DASH + GAP) * (ahead.cumsum(1) - ahead)
    return np.stack([start, start + DASH * ahead], 2)


def _fits(walks: Floats, taken: NDArray[np.bool_], image: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    points = _points(walks)
    inside = np.all((points > MARGIN) & (points < size - MARGIN), (1, 2))
    fits = np.zeros(len(walks), bool)
    cells = (points[inside] * CELLS).astype(int)
    fits[inside] = ~np.any(taken[image[inside][:, None], cells[..., 0], cells[..., 1]], 1)
    some = np.flatnonzero(fits)
    middles = walks[some].mean(2)  # a curve must not come back to itself
    apart = np.linalg.norm(middles[:, :, None] - middles[:, None], axis=-1)
    order = np.arange(walks.shape[1])
    apart[:, np.abs(order[:, None] - order) < 2] = np.inf
    fits[some] = apart.min((1, 2)) > CLEAR + DASH / 2
    return fits


def _take(taken: NDArray[np.bool_], image: NDArray[np.int64], dashes: Floats) -> None:
    reach = int(CLEAR * CELLS)
    disc = np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * 2, indexing="ij"), -1).reshape(-1, 2)
    disc = disc[(disc**2).sum(-1) <= (CLEAR * CELLS) ** 2]
    cells = ((_points(dashes) * CELLS).astype(int)[:, :, None] + disc).clip(0, taken.shape[1] - 1)
    taken[image[:, None, None], cells[..., 0], cells[..., 1]] = True


def _points(dashes: Floats) -> Floats:
    """Both ends and the middle of each dash, and the middle of the gap behind it."""
    a, b = dashes[:, :, 0], dashes[:, :, 1]
    return np.concatenate([a, (a + b) / 2, b, b + (b - a) * (GAP / DASH / 2)], 1)


def read(where: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [N, size, size] and whether they are joined: of the folder curv_contour_length_14 of the Long Range
    Arena's pathfinder32 (imgs, and metadata that list them), or of a file .npz of x and y."""
    path = Path(where).expanduser()
    if path.suffix == ".npz":
        try:
            with np.load(path, allow_pickle=False) as held:
                return held["x"], held["y"].astype(np.int64)
        except (OSError, KeyError, ValueError) as problem:
            raise UserError(f"cannot read {path}, which should hold x and y: {problem}") from problem
    lists = sorted((path / "metadata").glob("*.npy"), key=lambda file: (len(file.name), file.name))
    if not lists:
        raise UserError(f"there is no metadata/*.npy in {path}: {FETCH}")
    try:
        from PIL import Image
    except ImportError as missing:
        raise UserError("images as files need: pip install 'longwave[twins]'") from missing
    images, labels = [], []
    for file in lists:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            cells = line.split()  # folder, name, number, joined or not, more
            if len(cells) < 4 or cells[3] not in ("0", "1"):
                raise UserError(f"{file}, line {number}: not a folder, a name, a number, and 0 or 1")
            try:
                images.append(np.asarray(Image.open(path / cells[0] / cells[1]).convert("L")))
            except OSError as problem:
                raise UserError(
                    f"{file}, line {number}: cannot read {path / cells[0] / cells[1]}: {problem}"
                ) from problem
            labels.append(int(cells[3]))
    return np.stack(images), np.array(labels, np.int64)
