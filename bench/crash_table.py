"""python -m bench.crash_table: puts each store that is installed through crashkit, and writes
docs/reference/crashkit.md."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "crashkit.md"
STORES = ("Steno", "OpenAIAgents", "LangGraph", "GoogleADK", "PydanticAI", "Microsoft")
MARK = "<!-- made by make crashkit -->\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", default="12")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--store", action="append", choices=STORES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name in options.store or STORES:
            file = Path(folder) / f"{name}.json"
            how = ["--rounds", options.rounds, "--seed", options.seed, "--json", str(file)]
            words = ["run", "store", f"bench.crash_stores:{name}", *how]
            subprocess.run([sys.executable, "-m", "crashkit", *words], check=False)
            files += [str(file)] if file.exists() else []
        score = [sys.executable, "-m", "crashkit", "score", *files]
        table = subprocess.run(score, check=True, capture_output=True, text=True).stdout
    before = PAGE.read_text().partition(MARK)[0]
    PAGE.write_text(f"{before}{MARK}\n{table}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
