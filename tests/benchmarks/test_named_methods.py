"""docs/benchmarks.md prints what was measured."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_named_methods_has_the_measured_numbers():
    page = (ROOT / "docs" / "benchmarks.md").read_text().split("### Named methods")[1].split("\n## ")[0]
    for line in (ROOT / "benchmarks" / "results" / "named-methods-h200.jsonl").read_text().splitlines():
        assert f" {json.loads(line)['ms_per_round']:.1f} " in page
