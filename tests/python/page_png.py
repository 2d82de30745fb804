"""Makes the browser's pictures small: at most 256 colours, packed as well as can be."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from typing import Dict, Iterator, List, Tuple

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def smaller(png: bytes) -> bytes:
    """The same picture with fewer colours. It must have 8 bits in each of 3 or 4 channels, and no interlacing."""
    chunks = list(_chunks(png))
    width, height, depth, kind, *_, interlaced = struct.unpack(">IIBBBBB", dict(chunks)[b"IHDR"])
    assert depth == 8 and kind in (2, 6) and not interlaced
    channels = 3 if kind == 2 else 4
    data = zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT"))
    rows = _rows(data, width * channels, channels)
    pixels = [list(zip(row[0::channels], row[1::channels], row[2::channels])) for row in rows]
    counts = Counter(pixel for row in pixels for pixel in row)
    places, palette = _palette(counts)
    lines = b"".join(b"\0" + bytes(places[pixel] for pixel in row) for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    colours = b"".join(bytes(colour) for colour in palette)
    return SIGNATURE + b"".join(
        _chunk(name, body)
        for name, body in ((b"IHDR", header), (b"PLTE", colours), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    )


Colour = Tuple[int, int, int]


def _palette(counts: Dict[Colour, int]) -> Tuple[Dict[Colour, int], List[Colour]]:
    """The colours that stay, the most frequent ones, and for each colour the place of the nearest of them."""
    palette = [colour for colour, _ in Counter(counts).most_common(256)]
    places = {colour: place for place, colour in enumerate(palette)}

    def nearest(colour: Colour) -> int:
        return min(range(len(palette)), key=lambda at: sum((a - b) ** 2 for a, b in zip(palette[at], colour)))

    return {colour: places[colour] if colour in places else nearest(colour) for colour in counts}, palette


def _chunks(png: bytes) -> Iterator[Tuple[bytes, bytes]]:
    assert png.startswith(SIGNATURE)
    at = len(SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += 12 + length


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _rows(data: bytes, width: int, step: int) -> Iterator[bytearray]:
    """The rows without their filters."""
    above = bytearray(width)
    for start in range(0, len(data), width + 1):
        kind, row = data[start], bytearray(data[start + 1 : start + 1 + width])
        for i in range(width):
            left = row[i - step] if i >= step else 0
            corner = above[i - step] if i >= step else 0
            if kind == 1:
                row[i] = (row[i] + left) & 255
            elif kind == 2:
                row[i] = (row[i] + above[i]) & 255
            elif kind == 3:
                row[i] = (row[i] + (left + above[i]) // 2) & 255
            elif kind == 4:
                guess = left + above[i] - corner
                order = ((abs(guess - left), 0, left), (abs(guess - above[i]), 1, above[i]), (abs(guess - corner), 2, corner))
                row[i] = (row[i] + min(order)[2]) & 255
        yield row
        above = row
