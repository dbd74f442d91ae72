"""Draws docs/pictures/speed.png from docs/speed.json: `python docs/make_speed_chart.py`.

The four ratios are rows of the table in docs/benchmarks.md, and a test compares the two.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent
BLUE = "#2457c5"


def main() -> None:
    """Draw a bar for each ratio, from 1 on a logarithmic axis, with the range of the rounds."""
    rows = json.loads((FOLDER / "speed.json").read_text(encoding="utf-8"))
    figure, axes = plt.subplots(figsize=(8, 2.9), layout="constrained")
    for place, row in enumerate(rows):
        axes.barh(place, row["ratio"] - 1, left=1, height=0.55, color=BLUE)
        axes.plot([row["low"], row["high"]], [place, place], color="black", lw=1.5)
        axes.text(row["high"] * 1.06, place, f"{row['ratio']:.2g} x", va="center", weight="bold")
    axes.set_yticks(range(len(rows)), [row["label"] for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(1, 80)
    ticks = [1, 2, 5, 10, 20, 50]
    axes.set_xticks(ticks, [f"{tick} x" for tick in ticks])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("How many times as fast, on two CPU cores (log scale; line: range of rounds)")
    axes.title.set_size(10)
    figure.savefig(FOLDER / "pictures" / "speed.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
