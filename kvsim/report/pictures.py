"""Pictures of panels: SVG that is the same wherever it is drawn, and one PNG of all of them."""

import io
import re
from collections.abc import Sequence

from matplotlib.figure import Figure
from PIL import Image

PREAMBLE = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>", re.DOTALL)
FRACTION = re.compile(r"-?\d+\.\d{3,}")
IDENTIFIER = re.compile(r"\b[mphc][0-9a-f]{10}\b")


def svg(figure: Figure) -> str:
    """Return a figure as SVG without date, with short numbers and with ids in order of appearance.

    Matplotlib's ids are digests of coordinates to the last bit, which differ between machines.
    """
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = FRACTION.sub(lambda number: f"{float(number[0]):.2f}", PREAMBLE.sub("", file.getvalue()))
    ids = {
        name: f"i{number}" for number, name in enumerate(dict.fromkeys(IDENTIFIER.findall(text)))
    }
    text = IDENTIFIER.sub(lambda name: ids[name[0]], text)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip()) + "\n"


def png(panels: Sequence[Figure]) -> bytes:
    """Return one picture of all panels, two in a row, for readers that show no SVG."""
    images = [_image(panel) for panel in panels]
    rows = [images[start : start + 2] for start in range(0, len(images), 2)]
    width = max(sum(image.width for image in row) for row in rows)
    whole = Image.new("RGB", (width, sum(max(x.height for x in row) for row in rows)), "white")
    top = 0
    for row in rows:
        left = 0
        for image in row:
            whole.paste(image, (left, top))
            left += image.width
        top += max(image.height for image in row)
    file = io.BytesIO()
    whole.save(file, "png", optimize=True)
    return file.getvalue()


def _image(figure: Figure) -> Image.Image:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return Image.open(file).convert("RGB")
