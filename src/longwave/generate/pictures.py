"""Images that a model drew: as characters, or as a PNG."""

import struct
import zlib
from pathlib import Path

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from longwave.files import write_whole

INK = " .:-=+*#%@"  # from dark to bright
GAP = 1  # black pixels between images

Pixels = UInt8[Tensor, "_ _ C"]


def side_by_side(images: Int[Tensor, "N C H W"], levels: int) -> Pixels:
    """In one row; from levels to bytes."""
    bright = torch.nn.functional.pad(images * 255 // (levels - 1), (0, GAP)).to(torch.uint8)
    return torch.cat(list(bright), 2)[..., :-GAP].movedim(0, -1)


def as_text(pixels: Pixels) -> str:
    """Two characters a pixel, which together are about square."""
    ink = pixels.float().mean(-1).mul(len(INK) / 256).long()
    return "\n".join("".join(2 * INK[i] for i in row).rstrip() for row in ink.tolist())


def write_png(path: str | Path, pixels: Pixels) -> None:
    """Of one value a pixel, grey, or of three."""
    rows, columns, colours = pixels.shape
    kind = {1: 0, 3: 2}[colours]
    lines = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in pixels)  # each begins with its filter: none
    header = struct.pack(">IIBBBBB", columns, rows, 8, kind, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    whole = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    )
    write_whole(path, lambda file: file.write_bytes(whole))
