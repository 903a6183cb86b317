"""A log-log plot of several lines over one size, as SVG."""

from __future__ import annotations

import math

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860, 520, 70, 20, 330, 50
COLOURS = ("#0a7", "#06c", "#c40", "#90c", "#a80", "#555")


def growth_plot(lines: dict[str, list[tuple[float, float]]], x_label: str) -> str:
    """Draw lines; both axes are logarithmic, labels stand at the right."""
    points = [point for line in lines.values() for point in line]
    x_low, x_high = _span([x for x, _ in points])
    y_low, y_high = _span([y for _, y in points])

    def x_of(value: float) -> float:
        share = (math.log10(value) - x_low) / (x_high - x_low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y_of(value: float) -> float:
        share = (math.log10(value) - y_low) / (y_high - y_low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="{HEIGHT - 10}">{x_label}</text>',
    ]
    for exponent in range(math.ceil(y_low), math.floor(y_high) + 1):
        y = y_of(10.0**exponent)
        out.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="#ddd"/><text x="8" y="{y + 4:.1f}">{10.0**exponent:g}</text>'
        )
    for size in sorted({x for x, _ in points}):
        out.append(
            f'<text x="{x_of(size):.1f}" y="{HEIGHT - 30}" text-anchor="middle" '
            f'font-size="11">{size:,.0f}</text>'
        )
    ends = sorted(lines, key=lambda name: -lines[name][-1][1])
    places = _spread([y_of(lines[name][-1][1]) for name in ends])
    for number, (name, place) in enumerate(zip(ends, places, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        dash = "none" if number < len(COLOURS) else "6 4"
        style = f'fill="none" stroke="{colour}" stroke-dasharray="{dash}"'
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in lines[name])
        end = f"{x_of(lines[name][-1][0]):.1f},{y_of(lines[name][-1][1]):.1f}"
        out += [
            f'<polyline points="{path}" stroke-width="2" {style}/>',
            f'<polyline points="{end} {WIDTH - RIGHT + 24},{place:.1f}" {style}/>',
            f'<text x="{WIDTH - RIGHT + 28}" y="{place + 4:.1f}" fill="{colour}">'
            f"{name}</text>",
        ]
    return "\n".join([*out, "</svg>"]) + "\n"


def _span(values: list[float]) -> tuple[float, float]:
    low, high = math.log10(min(values)), math.log10(max(values))
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _spread(places: list[float]) -> list[float]:
    """Move labels, given from top to bottom, so that none covers another."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + 16) if found else place)
    over = max(0.0, found[-1] - (HEIGHT - BOTTOM)) if found else 0.0
    return [place - over for place in found]
