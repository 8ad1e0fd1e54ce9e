"""Print the rendered book into one PDF: every page of the table of contents, in its order."""

import io
import sys
from pathlib import Path

import yaml
from browser import CHROMIUM, HTML, ROOT, chromium, serving
from build import pages
from pypdf import PdfWriter

FOOT = (
    '<p style="font-size: 7pt; margin: auto; color: #555">'
    '<span class="title"></span>, page <span class="pageNumber"></span></p>'
)
MARGIN = {"top": "15mm", "bottom": "18mm", "left": "15mm", "right": "15mm"}


def write(target: Path) -> int:
    """Print all pages into `target` and return how many sheets there are."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    whole = PdfWriter()
    with serving() as site, chromium() as browser:
        page = browser.new_page()
        for file in pages(toc):
            page.goto(f"{site}{Path(file).with_suffix('.html')}", wait_until="networkidle")
            page.evaluate("dispatchEvent(new Event('beforeprint'))")
            sheets = page.pdf(
                format="A4",
                margin=MARGIN,
                display_header_footer=True,
                header_template="<p></p>",
                footer_template=FOOT,
            )
            whole.append(io.BytesIO(sheets), outline_item=page.locator("h1").first.inner_text())
    part = target.with_suffix(".part")
    whole.write(part)
    part.replace(target)
    return len(whole.pages)


if __name__ == "__main__":
    if not CHROMIUM:
        sys.exit("make pdf: there is no Chromium on this machine (apt-get install chromium)")
    if not HTML.exists():
        sys.exit(f"make pdf: {HTML} is missing (make html)")
    print(f"{write(Path(sys.argv[1]))} sheets: {sys.argv[1]}")
