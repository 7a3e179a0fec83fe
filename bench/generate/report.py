"""Run the simulated cases and print the tables; write values and a plot to build/.

    report.py [--seeds N] [--first FIRST] [--jobs N] [--trace FILE]

FILE is AzureLLMInferenceTrace_conv.csv of AzurePublicDataset; without it that case is left out.
"""

import argparse
import datetime
import os
import platform
import statistics
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/bench/generate/bench-generate"
OUT = ROOT / "build"
HELD_OUT = 6000  # constants were chosen with seeds below: these judge them
PART = 5  # seeds that one process runs
FAULTS = {
    "none": "nothing goes wrong",
    "loss": "one replica is lost half way",
    "weights": "new weights three times on the way, 2 s each, all at one barrier",
    "hang": "1 % of the requests hang",
}

Row = dict[str, str]


def run(fault: str, seeds: int, first: int, trace: str) -> list[Row]:
    """A trace is only replayed where nothing goes wrong."""
    command = [
        str(PROGRAM),
        "-s",
        str(seeds),
        "-o",
        str(first),
        "-f",
        fault,
        "-d",
        trace if fault == "none" else "none",
    ]
    names = (
        "case policy fault seed makespan bound ratio mean p99 preempted moved "
        "events scheduler dropped".split()
    )
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [
        dict(zip(names, line.split("\t"), strict=False)) for line in text.splitlines()
    ]


def run_all(seeds: int, first: int, trace: str, jobs: int) -> dict[str, list[Row]]:
    """The rows of each fault; several processes side by side."""
    end = first + seeds
    with ThreadPoolExecutor(jobs) as pool:
        parts = {
            fault: [
                pool.submit(run, fault, min(PART, end - at), at, trace)
                for at in range(first, end, PART)
            ]
            for fault in FAULTS
        }
        return {
            fault: list(chain.from_iterable(part.result() for part in of))
            for fault, of in parts.items()
        }


def medians(rows: list[Row], field: str) -> dict[tuple[str, str], tuple[float, float]]:
    """(median, worst) over the seeds by (policy, case)."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        values[row["policy"], row["case"]].append(float(row[field]))
    return {key: (statistics.median(v), max(v)) for key, v in values.items()}


def print_table(rows: list[Row], field: str, cases: list[str]) -> None:
    found = medians(rows, field)
    print("| policy |" + "".join(f" {c} |" for c in cases))
    print("|---|" + "---:|" * len(cases))
    for policy in dict.fromkeys(row["policy"] for row in rows):
        cells = [found.get((policy, c)) for c in cases]
        text = [f" {c[0]:.3f} ({c[1]:.2f}) |" if c else " - |" for c in cells]
        print(f"| {policy} |" + "".join(text))


def print_targets(rows: list[Row], cases: list[str]) -> None:
    found = medians(rows, "makespan")

    def of(policy: str, case: str) -> float:
        return found[policy, case][0]

    print("| Muster's makespan | " + " | ".join(cases) + " |")
    print("|---|" + "---:|" * len(cases))
    for name in ("ROLL PromptAffinity", "verl sticky", "global FIFO"):
        ratios = [of("Muster", c) / of(name, c) for c in cases]
        print(f"| / {name} |" + "".join(f" {r:.3f} |" for r in ratios))
    shares = []
    for c in cases:
        fifo, best = of("global FIFO", c), of("oracle longest first", c)
        best = min(best, found.get(("oracle plan", c), (best, 0))[0])
        shares.append((fifo - of("Muster", c)) / (fifo - best) if fifo > best else 1)
    print(
        "| share of the gap FIFO to oracle |"
        + "".join(f" {100 * s:.0f} % |" for s in shares)
    )


def svg(rows: list[Row], cases: list[str]) -> str:
    """Bars of the makespan over the bound, case by case."""
    found = medians(rows, "ratio")
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    bar, high, left = 9, 260, 40
    width = left + len(cases) * (len(policies) + 2) * bar + 220
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{high + 60}" '
        'font-family="sans-serif" font-size="11">'
    ]
    top = 2.0
    for tick in (1.0, 1.2, 1.4, 1.6, 1.8):
        y = 20 + high * (1 - (tick - 1) / (top - 1))
        parts.append(
            f'<line x1="{left}" x2="{width - 210}" y1="{y}" y2="{y}" stroke="#ddd"/>'
        )
        parts.append(f'<text x="8" y="{y + 4}">{tick}</text>')
    for i, case in enumerate(cases):
        x0 = left + i * (len(policies) + 2) * bar
        parts.append(f'<text x="{x0}" y="{high + 38}">{case}</text>')
        for k, policy in enumerate(policies):
            if (policy, case) not in found:
                continue
            h = high * (min(found[policy, case][0], top) - 1) / (top - 1)
            parts.append(
                f'<rect x="{x0 + k * bar}" y="{20 + high - h:.1f}" width="{bar - 1}" '
                f'height="{h:.1f}" fill="{colour(policy, k)}"/>'
            )
    for k, policy in enumerate(policies):
        y = 24 + k * 16
        parts.append(
            f'<rect x="{width - 200}" y="{y}" width="10" height="10" '
            f'fill="{colour(policy, k)}"/>'
            f'<text x="{width - 184}" y="{y + 9}">{policy}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def colour(policy: str, k: int) -> str:
    if policy.startswith("Muster"):
        return "#c0392b" if policy == "Muster" else "#e59866"
    return f"hsl({200 + 9 * k}, 35%, {40 + 2 * k}%)"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=HELD_OUT)
    parser.add_argument("--trace", default=os.environ.get("AZURE_TRACE", "none"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    today = datetime.datetime.now(datetime.UTC).date()
    print(
        f"{today}, {platform.machine()}, {os.cpu_count()} cores, {options.seeds} seeds from {options.first};"
    )
    print("makespan / lower bound, median (worst)\n")
    rows = []
    of = run_all(options.seeds, options.first, options.trace, options.jobs)
    for fault, words in FAULTS.items():
        found = of[fault]
        rows += found
        cases = list(dict.fromkeys(row["case"] for row in found))
        print(f"\n**{words}**\n")
        print_table(found, "ratio", [c for c in cases if not c.startswith("azure")])
        for row in found:
            if row["dropped"] != "0":
                print(
                    f"\n{row['policy']}, {row['case']}, seed {row['seed']}: gave up {row['dropped']} groups"
                )
        if fault != "none":
            continue
        (OUT / "bench-generate.svg").write_text(svg(found, cases))
        print()
        print_targets(found, [c for c in cases if c.startswith("S") or c == "turns"])
        traces = [c for c in cases if c.startswith("azure")]
        for field in ("mean", "p99") if traces else ():
            print(f"\narrivals of a trace: seconds from arrival to end, {field}\n")
            print_table([r for r in found if r["case"] in traces], field, traces)
    with (OUT / "bench-generate.tsv").open("w") as f:
        f.writelines("\t".join(row.values()) + "\n" for row in rows)
    print(
        f"\n{subprocess.run([PROGRAM, '-S'], check=True, capture_output=True, text=True).stdout}"
    )
    print(f"values: {OUT / 'bench-generate.tsv'}, plot: {OUT / 'bench-generate.svg'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
