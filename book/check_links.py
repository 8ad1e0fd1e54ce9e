"""Check every link between the pages of the rendered book; other sites are not asked."""

import sys
from pathlib import Path

from linkcheck.command import linkchecker

INDEX = Path(__file__).resolve().parent.parent / "_build" / "html" / "index.html"

# As root, LinkChecker turns into the user `nobody`, who cannot read a clone in root's home.
linkchecker.drop_privileges = lambda: None
sys.argv = ["linkchecker", "--no-status", "--no-warnings", str(INDEX)]
linkchecker.linkchecker()
