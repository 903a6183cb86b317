"""A figure of lines as a small SVG, for results that people look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from report import RESULTS

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 420, 56, 40, 250, 44


@dataclass(frozen=True)
class Line:
    """One line of a figure."""

    name: str
    points: list[tuple[float, float]]
    colour: str
    dashed: bool = False


def plot(
    name: str,
    title: str,
    axes: tuple[str, str],
    lines: list[Line],
    y_range: tuple[float, float] | None = None,
) -> Path:
    """Write ``results/<name>.svg`` with linear axes."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    x_span, y_span = (min(xs), max(xs)), y_range or (min(ys), max(ys))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_span[0]) / ((x_span[1] - x_span[0]) or 1.0)
        up = (y - y_span[0]) / ((y_span[1] - y_span[0]) or 1.0)
        return (
            LEFT + across * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM),
        )

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{title}</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 8}">{axes[0]} (across), {axes[1]} (up)</text>',
    ]
    for step in range(6):
        x = x_span[0] + step / 5 * (x_span[1] - x_span[0])
        y = y_span[0] + step / 5 * (y_span[1] - y_span[0])
        at_x, at_y = place(x, y_span[0])[0], place(x_span[0], y)[1]
        out += [
            f'<text x="{at_x:.1f}" y="{HEIGHT - 26}" font-size="10" '
            f'text-anchor="middle">{x:.3g}</text>',
            f'<text x="{LEFT - 6}" y="{at_y + 4:.1f}" font-size="10" '
            f'text-anchor="end">{y:.3g}</text>',
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y:.1f}" '
            f'y2="{at_y:.1f}" stroke="#ddd"/>',
        ]
    for number, line in enumerate(lines):
        path = " ".join(
            f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line.points)
        )
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        style = f'fill="none" stroke="{line.colour}" stroke-width="1.6"{dash}'
        y = TOP + 14 + 18 * number
        at = WIDTH - RIGHT + 14
        out += [
            f'<polyline points="{path}" {style}/>',
            f'<line x1="{at}" x2="{at + 28}" y1="{y}" y2="{y}" {style}/>',
            f'<text x="{at + 34}" y="{y + 4}">{line.name}</text>',
        ]
    RESULTS.mkdir(exist_ok=True)
    figure = RESULTS / f"{name}.svg"
    figure.write_text("\n".join([*out, "</svg>"]) + "\n")
    return figure
