"""A line chart as SVG, in plain Python."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 34, 48
COLOURS = ["#777777", "#d1661f", "#0b62b0", "#5a9e3a"]


def step_of(span, most=6):
    """1, 2 or 5 times a power of ten, such that at most `most` fit into the span."""
    raw = span / most
    power = 10 ** math.floor(math.log10(raw))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)


def ticks(low, high):
    step = step_of((high - low) or 1)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def text(x, y, words, anchor="middle", more=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>'
            f"{escape(str(words))}</text>")


class Scale:
    def __init__(self, values, start, end, margin):
        low, high = min(values), max(values)
        room = margin * ((high - low) or 1)
        self.low, self.high, self.start, self.end = low - room, high + room, start, end

    def __call__(self, value):
        share = (value - self.low) / ((self.high - self.low) or 1)
        return self.start + share * (self.end - self.start)


def axes(x, y, x_title, y_title):
    parts = []
    for tick in ticks(y.low, y.high):
        parts.append(f'<path d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        parts.append(text(LEFT - 8, y(tick) + 4, f"{tick:g}", "end"))
    for tick in ticks(x.low, x.high):
        parts.append(text(x(tick), HEIGHT - BOTTOM + 18, f"{tick:g}"))
    parts.append(f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" '
                 'stroke="#333333"/>')
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_title))
    parts.append(text(14, (TOP + HEIGHT - BOTTOM) / 2, y_title, more=(
        f' transform="rotate(-90 14 {(TOP + HEIGHT - BOTTOM) / 2:.1f})"')))
    return parts


def series_parts(number, points, x, y, name):
    colour = COLOURS[number % len(COLOURS)]
    places = [(x(a), y(b)) for a, b in points]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in places]
    at = LEFT + 8 + number * 185
    parts.append(f'<path d="M{at} 16h22" stroke="{colour}" stroke-width="3"/>')
    parts.append(text(at + 28, 20, name, "start"))
    return parts


def chart(series, x_title, y_title, from_zero=False):
    """A chart of {name: [(x, y)]} without the series that have no points. A curve covers
    those before it."""
    series = {name: points for name, points in series.items() if points}
    points = [point for line in series.values() for point in line]
    x = Scale([a for a, _ in points], LEFT, WIDTH - RIGHT, 0.03)
    y = Scale([b for _, b in points] + ([0] if from_zero else []), HEIGHT - BOTTOM, TOP,
              0 if from_zero else 0.05)
    parts = axes(x, y, x_title, y_title)
    for number, (name, line) in enumerate(series.items()):
        parts += series_parts(number, line, x, y, name)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">\n'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n' +
            "\n".join(parts) + "\n</svg>\n")
