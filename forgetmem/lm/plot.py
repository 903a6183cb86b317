"""A plot of a training run, as SVG without any library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

_WIDTH, _HEIGHT, _EDGE = 640, 360, 48
_CURVES = (("bpc", "#888888", "training"), ("held_out_bpc", "#c03028", "held out"))


def save_plot(log: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw bits per character against steps.

    Parameters
    ----------
    log : sequence of dict
        Lines with ``step``, ``bpc`` and sometimes ``held_out_bpc``.
    path : Path
    """
    curves = [
        (colour, name, [(line["step"], line[key]) for line in log if key in line])
        for key, colour, name in _CURVES
    ]
    points = [point for _, _, curve in curves for point in curve]
    last = max((step for step, _ in points), default=1)
    low = min((bits for _, bits in points), default=0.0)
    high = max((bits for _, bits in points), default=1.0)
    span = (high - low) or 1.0

    def place(step: float, bits: float) -> tuple[float, float]:
        x = _EDGE + (_WIDTH - 2 * _EDGE) * step / last
        return x, _HEIGHT - _EDGE - (_HEIGHT - 2 * _EDGE) * (bits - low) / span

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for bits in (low, (low + high) / 2, high):
        x, y = place(0, bits)
        parts.append(
            f'<text x="{x - 6:.0f}" y="{y:.0f}" text-anchor="end">{bits:.2f}</text>'
        )
        parts.append(f'<path d="M{x:.0f} {y:.1f}H{_WIDTH - _EDGE}" stroke="#dddddd"/>')
    x, y = place(last, low)
    parts.append(
        f'<text x="{x:.0f}" y="{y + 24:.0f}" text-anchor="end">step {last}</text>'
    )
    parts.append(f'<text x="{_EDGE}" y="20">bits per character</text>')
    for number, (colour, name, curve) in enumerate(curves):
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*p) for p in curve))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"/>')
        parts.append(
            f'<text x="{_WIDTH - _EDGE - 70 * (2 - number)}" y="20" fill="{colour}">'
            f"{name}</text>"
        )
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")
