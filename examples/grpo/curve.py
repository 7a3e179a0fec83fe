"""The curve of a run: a picture in characters, and one in SVG."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

from show import Progress

COLUMNS, ROWS = 64, 8  # of the picture in characters
LEFT, TOP, WIDTH, HEIGHT = 56, 40, 620, 240  # of the plot within the other one
RIGHT, BOTTOM = 24, 56  # beside and below it
SMOOTH = 4  # steps on either side
EACH_TEXT = 'fill="#58a" text-anchor="end"'
MEAN_TEXT = 'fill="#16c" text-anchor="end" font-weight="bold"'


def plot(progress: Progress) -> str:
    """In characters."""
    count = len(progress.rewards)
    width = min(COLUMNS, count)
    edges = [i * count // width for i in range(width + 1)]
    columns = [progress.mean(*pair) for pair in pairwise(edges)]
    lines = [""]
    for row in reversed(range(ROWS)):
        filled = (min(max(c * ROWS - row, 0), 1) for c in columns)
        text = "".join(" ▁▂▃▄▅▆▇█"[round(8 * part)] for part in filled)
        lines.append(f"{(row + 1) / ROWS:>5.2f} |{text}")
    axis = ["-"] * width
    for step, _ in progress.events:
        axis[min(step * width // count, width - 1)] = "x"
    lines.append(f"{0:>5.2f} +{''.join(axis)}")
    lines += [f"       x  {text}" for _, text in progress.events]
    return "\n".join(lines)


class Picture:
    """Lines and words of an SVG file, at places given as step and reward."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        size = f"{LEFT + WIDTH + RIGHT} {TOP + HEIGHT + BOTTOM}"
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" '
            'font-family="sans-serif" font-size="12" fill="#333">',
            '<rect width="100%" height="100%" fill="white"/>',
        ]

    def at(self, step: float, reward: float) -> tuple[float, float]:
        across = step / max(1, self.steps - 1)
        return round(LEFT + WIDTH * across, 1), round(TOP + HEIGHT * (1 - reward), 1)

    def line(self, places: Sequence[tuple[float, float]], style: str) -> None:
        points = " ".join("{},{}".format(*self.at(*place)) for place in places)
        self.parts.append(f'<polyline points="{points}" fill="none" {style}/>')

    def text(
        self,
        step: float,
        reward: float,
        right: float,
        down: float,
        text: str,
        style: str,
    ) -> None:
        x, y = self.at(step, reward)
        where = f'x="{x + right:.1f}" y="{y + down:.1f}"'
        self.parts.append(f"<text {where} {style}>{escape(text)}</text>")

    def save(self, path: str) -> None:
        Path(path).write_text("\n".join([*self.parts, "</svg>", ""]))


def _axes(picture: Picture) -> None:
    last = picture.steps - 1
    picture.text(0, 1, 0, -18, "Mean reward", 'font-size="15"')
    for tick in (0, 0.25, 0.5, 0.75, 1):
        picture.line([(0, tick), (last, tick)], 'stroke="#ddd"')
        picture.text(0, tick, -8, 4, f"{tick:g}", 'text-anchor="end"')
    quarters = (max(1, picture.steps * i // 4) for i in range(5))
    for step in dict.fromkeys(quarters):
        picture.text(step - 1, 0, 0, 18, f"{step}", 'text-anchor="middle"')
    picture.text(last / 2, 0, 0, 40, "step", 'text-anchor="middle"')
    picture.text(last, 1, -128, -18, "each step", EACH_TEXT)
    picture.text(last, 1, 0, -18, f"mean of {2 * SMOOTH + 1} steps", MEAN_TEXT)


def draw(progress: Progress, path: str) -> None:
    """In SVG: each step, the mean of those around it, and what happened when."""
    steps = range(len(progress.rewards))
    picture = Picture(len(steps))
    _axes(picture)
    for step, text in progress.events:
        style = 'stroke="#c33" stroke-dasharray="4 3"'
        picture.line([(step, 0), (step, 1)], style)
        is_late = step > len(steps) / 2  # its words are on the left, within the picture
        right, anchor = (-6, "end") if is_late else (6, "start")
        picture.text(step, 0, right, -10, text, f'fill="#c33" text-anchor="{anchor}"')
    mean = [progress.mean(max(0, i - SMOOTH), i + SMOOTH + 1) for i in steps]
    each = list(zip(steps, progress.rewards, strict=True))
    picture.line(each, 'stroke="#9bd" stroke-width="1"')
    picture.line(
        list(zip(steps, mean, strict=True)), 'stroke="#16c" stroke-width="2.5"'
    )
    picture.save(path)
