"""Pictures of a report for the documents: python -m tests.browser.screenshots report.html docs/pictures/report"""

import sys
import tempfile
from pathlib import Path

from tests.browser.chromium import Chromium, find_chromium

VIEWS = {"light": (1280, 1060), "dark": (1280, 1060), "phone": (390, 844)}


def take(page: Path, prefix: str) -> None:
    """<prefix>-light.png from the top, -dark.png at the heat maps (or the runs), -phone.png at the width of a phone."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Chromium(find_chromium(), Path(profile))
        try:
            for name, (width, height) in VIEWS.items():
                browser.prefer("dark" if name == "dark" else "light")
                browser.resize(width, height)
                browser.open(page)
                if name == "dark":
                    browser.evaluate(
                        "[...document.querySelectorAll('#heat, #runs')].find(e => !e.hidden)"
                        ".scrollIntoView({behavior: 'instant'})"
                    )
                browser.screenshot(Path(f"{prefix}-{name}.png"), whole=False)
        finally:
            browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]), sys.argv[2])
