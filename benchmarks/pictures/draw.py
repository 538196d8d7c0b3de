"""Shapes for pictures as SVG text: literal colors, generic fonts, a light plate that is
readable on light and on dark pages."""
from xml.sax.saxutils import escape

PLATE, EDGE, TEXT, NOTE, GRID = "#ffffff", "#d0d7de", "#1f2328", "#57606a", "#e3e7eb"
# The sides of a comparison, as in the loss curves.
PYTORCH, TANDEM = "#d1661f", "#0b62b0"
# Contents of a rank, and data that ranks send.
PARAMETERS, GRADIENTS, ACTIVATIONS, STATE = "#0b62b0", "#c2410c", "#2f7d32", "#7c3aed"
TINTS = {PARAMETERS: "#d6e6f5", GRADIENTS: "#fde4d3", ACTIVATIONS: "#dcefdc",
         STATE: "#e9defc", NOTE: "#eef1f4"}
# Widest advance per font size of the fonts that sans-serif and monospace stand for.
ADVANCE = {False: 0.54, True: 0.605}


def width_of(words, size, mono=False):
    """An upper estimate of the width of a sentence in pixels."""
    return len(words) * size * ADVANCE[mono]


class Picture:
    """An SVG of this size in pixels; (0, 0) is the upper left corner."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title = width, height, title
        self.parts = []

    def text(self, x, y, words, size=13, color=TEXT, anchor="start", bold=False, mono=False):
        """A line of text whose baseline starts, ends or is centered at (x, y)."""
        if not words:
            return
        font = ' font-family="monospace"' if mono else ""
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" '
            f'text-anchor="{anchor}"{font}{weight}>{escape(str(words))}</text>')

    def lines(self, x, y, lines, size=12, color=NOTE, anchor="start", pitch=1.4):
        for i, words in enumerate(lines):
            self.text(x, y + i * size * pitch, words, size, color, anchor)

    def box(self, x, y, width, height, fill=PLATE, stroke=EDGE, radius=4, dash=False):
        dashes = ' stroke-dasharray="5 4"' if dash else ""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'rx="{radius}" fill="{fill}" stroke="{stroke}"{dashes}/>')

    def path(self, points, color=NOTE, width=2, dash=False):
        dashes = ' stroke-dasharray="6 4"' if dash else ""
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{places}" fill="none" stroke="{color}" '
                          f'stroke-width="{width}"{dashes}/>')

    def head(self, x, y, dx, dy, color):
        """An arrowhead at (x, y) that points in a direction of length 1."""
        corners = [(x, y), (x - 9 * dx - 5 * dy, y - 9 * dy + 5 * dx),
                   (x - 9 * dx + 5 * dy, y - 9 * dy - 5 * dx)]
        places = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)
        self.parts.append(f'<polygon points="{places}" fill="{color}"/>')

    def arrow(self, x1, y1, x2, y2, color=NOTE, both=False, dash=False):
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        start = (x1 + 8 * dx, y1 + 8 * dy) if both else (x1, y1)
        self.path([start, (x2 - 8 * dx, y2 - 8 * dy)], color, 2, dash)
        self.head(x2, y2, dx, dy, color)
        if both:
            self.head(x1, y1, -dx, -dy, color)

    def dot(self, x, y, color, radius=4.5, hollow=False):
        fill, more = (PLATE, f' stroke="{color}" stroke-width="2"') if hollow else (color, "")
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}"{more}/>')

    def key(self, x, y, color, words, kind="box", size=12):
        """An entry of the legend; returns the x of the next entry."""
        if kind == "box":
            self.box(x, y - 10, 20, 11, TINTS.get(color, color), color, 2)
        elif kind == "arrow":
            self.arrow(x - 2, y - 4, x + 22, y - 4, color)
        elif kind == "bar":
            self.box(x, y - 10, 20, 11, color, color, 2)
        elif kind == "dot":
            self.dot(x + 10, y - 4, color)
        else:
            self.path([(x - 2, y - 4), (x + 22, y - 4)], color, 2, kind == "dash")
        self.text(x + 28, y, words, size, NOTE)
        return x + 46 + width_of(words, size)

    def svg(self):
        title = escape(self.title, {'"': "&quot;"})
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" '
            f'height="{self.height}" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-labelledby="title" font-family="sans-serif">\n'
            f'<title id="title">{title}</title>\n'
            f'<rect x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" '
            f'rx="8" fill="{PLATE}" stroke="{EDGE}"/>\n'
            + "\n".join(self.parts) + "\n</svg>\n")
