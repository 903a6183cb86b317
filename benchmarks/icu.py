"""Does a memory of bounded size keep the hours of intensive care that matter?

    python benchmarks/icu.py [--data PATH] [--small]

The paper's figures are on credentialed data (MIMIC-IV); these are on the open sets of
the PhysioNet/CinC Challenges 2012 (``set-a.csv.xz`` and so on) and 2019
(``training_setB_part.psv.xz``), all stays of them; without either, on made stays. What
its two protocols are taken to be:

- composite: the keys of a stay's memory are its hourly vitals, filled forward, in
  standard deviations of all stays. Hours are critical whose NEWS2 score, summed over
  the vitals of the key, is at least 7, the threshold for emergency response (5 where
  the key lacks respiration and oxygen). Retention of a stay is the share of its
  critical hours that are kept: as support of a one-class SVM (gamma = 1/4), or by a
  peer that keeps as many rows.
- held-out SpO2: it is left out of the key, and the hours that must be kept are those in
  which an SpO2 below 90 was measured.

`streamed`: the memory goes from hour to hour with its support rows alone. `ward`: one
memory over 20 stays one after the other, in which a window forgets all but the last.

Deletion: hours of many stays in one memory (linked at a squared distance of 0.2); one
stay is forgotten. Leakage is the difference of the readout at every remaining hour from
that of a memory, filled in another order, that never held the stay; beside it that of a
memory whose reading leaves out the stay's rows without solving again.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import physionet
from bootstrap import paired, shown
from keeping import deduplicated, h2o, k_centre, recent
from lines import Line, plot
from physionet import Stay
from pooled import deletion
from report import machine, markdown, save

GAMMA = 0.25
NUS = (0.1, 0.2, 0.4)
LEAST_HOURS = 12
WARD = 20
WARD_NU = 0.05
STREAM_NU = 0.2
LOW_SPO2 = 90.0
SEED = 48
PAPER = {
    "composite": {"support": 0.80, "recency": 0.05},
    "held-out SpO2": {"support": 0.464, "reference": 0.225, "recency": 0.409},
}
#: NEWS2 (Royal College of Physicians, 2017): upper ends of the bands, and points.
NEWS2 = {
    "HR": ([40, 50, 90, 110, 130], [3, 1, 0, 1, 2, 3]),
    "SysABP": ([90, 100, 110, 219], [3, 2, 1, 0, 3]),
    "Temp": ([35.0, 36.0, 38.0, 39.0], [3, 1, 0, 1, 2]),
    "RespRate": ([8, 11, 20, 24], [3, 1, 0, 2, 3]),
    "SpO2": ([91, 93, 95], [3, 2, 1, 0]),
}
ALL = physionet.VITALS
FOUR = ("HR", "SysABP", "MAP", "Temp")
FIVE = ("HR", "SysABP", "MAP", "RespRate", "Temp")

#: What a protocol looks at: keys in standard deviations, and which hours matter.
Case = tuple[np.ndarray, np.ndarray]
Keep = Callable[[np.ndarray, int], np.ndarray]
PEERS: dict[str, Keep] = {
    "recency": recent,
    "k-centre greedy": k_centre,
    "greedy de-duplication": deduplicated,
    "heavy hitters and recent (H2O)": functools.partial(h2o, gamma=GAMMA),
}


def news2(rows: np.ndarray, vitals: tuple[str, ...]) -> np.ndarray:
    """Points of each hour, over the vitals that there are."""
    total = np.zeros(len(rows))
    for column, vital in enumerate(vitals):
        if vital in NEWS2:
            ends, points = NEWS2[vital]
            total += np.array(points)[np.searchsorted(ends, rows[:, column])]
    return total


def cohort(
    stays: Iterable[Stay], vitals: tuple[str, ...]
) -> list[tuple[Stay, np.ndarray]]:
    """The stays with enough hours of these vitals, and the hours."""
    found = ((stay, stay.rows(vitals)) for stay in stays)
    return [(s, r) for s, r in found if r is not None and len(r) >= LEAST_HOURS]


def scaled(rows: list[np.ndarray]) -> list[np.ndarray]:
    """In standard deviations from the mean of all hours."""
    every = np.vstack(rows)
    mean, spread = every.mean(axis=0), every.std(axis=0)
    return [(each - mean) / spread for each in rows]


def composite(stays: list[Stay], vitals: tuple[str, ...], least: int) -> list[Case]:
    """Critical hours by the composite of the key's vitals."""
    rows = [rows for _, rows in cohort(stays, vitals)]
    return [
        (X, news2(hours, vitals) >= least)
        for X, hours in zip(scaled(rows), rows, strict=True)
    ]


def held_out(stays: list[Stay], vitals: tuple[str, ...]) -> list[Case]:
    """Hours in which a low SpO2 was measured, which the key does not tell."""
    found = cohort(stays, vitals)
    place = physionet.VITALS.index("SpO2")
    low = [stay.measured[stay.hours(vitals), place] < LOW_SPO2 for stay, _ in found]
    return list(zip(scaled([rows for _, rows in found]), low, strict=True))


def wards(cases: list[Case], count: int) -> list[Case]:
    """Stays one after the other, 20 at a time, in a random order."""
    order = np.random.default_rng(SEED).permutation(len(cases))
    out = []
    for start in range(0, min(count * WARD, len(order) - WARD + 1), WARD):
        parts = [cases[stay] for stay in order[start : start + WARD]]
        out.append(
            (np.vstack([X for X, _ in parts]), np.concatenate([e for _, e in parts]))
        )
    return out


def support(X: np.ndarray, nu: float) -> np.ndarray:
    """The rows that a one-class SVM over all hours keeps."""
    from forgetmem.svm import OneClassSVM

    return OneClassSVM(GAMMA, 1.0 / (nu * len(X))).fit(X).support_


def streamed(X: np.ndarray, nu: float) -> np.ndarray:
    """The rows that are left if reserve rows are dropped after every hour."""
    from forgetmem.svm import OneClassSVM

    svm, kept = OneClassSVM(GAMMA, 1.0 / (nu * physionet.HOURS)), []
    for hour in range(len(X)):
        svm.learn(X[hour : hour + 1])
        kept.append(hour)
        reserve = svm.reserve_.tolist()
        if reserve:
            svm.unlearn(reserve)
            kept = [h for row, h in enumerate(kept) if row not in set(reserve)]
    return np.array(kept)


def retention(
    cases: list[Case], nu: float, keep: Callable[[np.ndarray, float], np.ndarray]
) -> dict[str, Any]:
    """Share of the hours that matter which are kept, for each stay that has some."""
    shares: dict[str, list[float]] = {}
    budgets = []
    for X, wanted in cases:
        if not wanted.any():
            continue
        rows = keep(X, nu)
        budgets.append(len(rows) / len(X))
        kept = {"support": rows, **{n: f(X, len(rows)) for n, f in PEERS.items()}}
        for name, chosen in kept.items():
            shares.setdefault(name, []).append(
                float(np.isin(np.flatnonzero(wanted), chosen).mean())
            )
        shares.setdefault("random (expected)", []).append(budgets[-1])
    return summary(shares, budgets) | {"nu": nu}


def summary(shares: dict[str, list[float]], budgets: list[float]) -> dict[str, Any]:
    """Means, and differences from recency and from the best peer."""
    means = {name: float(np.mean(values)) for name, values in shares.items()}
    peers = [name for name in means if name != "support"]
    best = max(peers, key=lambda name: means[name]) if peers else ""
    return {
        "stays": len(budgets),
        "rows kept": float(np.mean(budgets)) if budgets else None,
        "retention": means,
        "best peer": best,
        "minus recency": paired(shares["support"], shares["recency"], SEED),
        "minus the best peer": paired(shares["support"], shares[best], SEED),
    }


def one_set(
    stays: list[Stay],
    key: tuple[str, ...],
    least: int,
    without: tuple[str, ...],
    n_wards: int,
) -> dict[str, Any]:
    """Run both protocols on one data set."""
    cases, low = composite(stays, key, least), held_out(stays, without)
    return {
        "stays": len(stays),
        "key": key,
        "least": least,
        "stays with the key": len(cases),
        "composite": [retention(cases, nu, support) for nu in NUS],
        "composite, streamed": retention(cases, STREAM_NU, streamed),
        "composite, ward": retention(wards(cases, n_wards), WARD_NU, support),
        "held-out SpO2, key": without,
        "held-out SpO2": [retention(low, nu, support) for nu in NUS],
    }


def benchmark(
    sets: dict[str, list[Stay]], n_wards: int, pool: int, removed: int
) -> dict[str, Any]:
    """Run everything on all sets."""
    result: dict[str, Any] = {
        "machine": machine(),
        "seed": SEED,
        "paper": PAPER,
        "sets": {},
    }
    for name, stays in sets.items():
        key, least, without = (FOUR, 5, FOUR) if "2012" in name else (ALL, 7, FIVE)
        result["sets"][name] = one_set(stays, key, least, without, n_wards)
    name, stays = next(iter(sets.items()))
    rows = [rows for _, rows in cohort(stays, FOUR)]
    order = np.random.default_rng(SEED).permutation(len(rows))[:pool]
    chosen = [rows[place] for place in order]
    result["deletion"] = {"set": name} | deletion(scaled(chosen), GAMMA, removed, SEED)
    return result


def retention_table(result: dict[str, Any]) -> str:
    """Everything about retention."""
    rows = []
    for name, found in result["sets"].items():
        runs = [("composite", run) for run in found["composite"]]
        runs.append(("composite, streamed", found["composite, streamed"]))
        runs.append((f"composite, wards of {WARD} stays", found["composite, ward"]))
        runs += [("held-out SpO2", run) for run in found["held-out SpO2"]]
        for protocol, run in runs:
            kept = run["retention"]
            others = [f"{kept[peer]:.3f}" for peer in (*PEERS, "random (expected)")]
            rows.append(
                [
                    name,
                    f"{protocol}, ν = {run['nu']}",
                    str(run["stays"]),
                    f"{100 * run['rows kept']:.0f} %",
                    f"**{kept['support']:.3f}**",
                    *others,
                    shown(run["minus recency"]),
                    f"{shown(run['minus the best peer'])} ({run['best peer']})",
                ]
            )
    header = [
        "set",
        "protocol",
        "with such hours",
        "rows kept",
        "support",
        *PEERS,
        "random (expected)",
        "support minus recency",
        "minus the best peer",
    ]
    return markdown(header, rows)


def figure(result: dict[str, Any], name: str) -> None:
    """Draw the retention of critical hours against the rows that are kept."""
    colours = {
        "support": "#0b5",
        "k-centre greedy": "#07c",
        "recency": "#c50",
        "random (expected)": "#999",
    }
    lines = []
    for number, (data, found) in enumerate(result["sets"].items()):
        for rule, colour in colours.items():
            points = [
                (run["rows kept"], run["retention"][rule]) for run in found["composite"]
            ]
            lines.append(
                Line(f"{rule}, {data.split()[-1]}", points, colour, bool(number))
            )
    title = "Critical hours that are kept, by composite"
    plot(name, title, ("share of the hours kept", "retention"), lines, (0.0, 1.0))


def section(result: dict[str, Any]) -> str:
    """Return the Markdown that stands in the README."""
    paper, gone = result["paper"], result["deletion"]
    cohorts = " ".join(
        f"{name}: {found['stays']} stays, {found['stays with the key']} with all of "
        f"{', '.join(found['key'])}; critical from {found['least']} points."
        for name, found in result["sets"].items()
    )
    return f"""## Are the critical hours of a stay kept, and is a patient gone when forgotten?

`python benchmarks/icu.py --data PATH`. {cohorts}

Each stay has a memory whose keys are its hourly vitals, filled forward, in standard
deviations; the one-class SVM (γ = {GAMMA}) keeps its support, and every peer keeps as many
hours. *Composite*: hours are critical whose NEWS2 points, summed over the vitals of the
key, reach the threshold. *Held-out SpO2*: the key has no oxygen saturation, and the hours
to be kept are those in which one below {LOW_SPO2:.0f} was measured. Shown is the share of
those hours that is kept, averaged over the stays (or wards) that have any; differences
with 95 % intervals of a paired bootstrap over them. *Streamed* goes from hour to hour with
the support alone; a *ward* is one memory over {WARD} stays one after the other.

The paper, on MIMIC-IV: composite {paper["composite"]["support"]:.2f} against
{paper["composite"]["recency"]:.2f} for a recency window of equal state; held-out SpO2
{paper["held-out SpO2"]["support"]} against {paper["held-out SpO2"]["reference"]}, recency
{paper["held-out SpO2"]["recency"]}. Data, composite and thresholds are not the same, so
only the order of the columns can be compared.

{retention_table(result)}

![Critical hours that are kept](results/icu.svg)

{verdict(result)}

**A patient is forgotten.** {gone["pool"]} stays of {gone["set"]} in one memory
({gone["hours"]} hours, {gone["support"]} of them support); {gone["removed"]} of the stays
are forgotten, each from the full memory, and the readout is compared with that of a memory
that never held the stay, at every remaining hour. Unit: standard deviations of a vital.

{deletion_table(gone)}
"""


def deletion_table(gone: dict[str, Any]) -> str:
    """Leakage, ours and that of a masked reading."""
    rows = [
        [
            "`forget(source_id=stay)`",
            f"{gone['ours: queries that differ']} of {gone['queries']}",
            f"{gone['ours: mean difference']:.2g}",
            f"{gone['ours: largest difference']:.2g}",
            f"{gone['digests as if never held']} of {gone['removed']}",
            f"{gone['proofs verified']} of {gone['removed']}",
        ],
        [
            "rows left out of the reading, not solved again",
            f"{gone['masked: queries that differ']} of {gone['queries']}",
            f"{gone['masked: mean difference']:.2g}",
            f"{gone['masked: largest difference']:.2g}",
            "-",
            "-",
        ],
    ]
    header = [
        "removal",
        "readouts that differ",
        "mean difference",
        "largest",
        "digests as if never held",
        "proofs verified",
    ]
    return markdown(header, rows)


def verdict(result: dict[str, Any]) -> str:
    """Count where support wins, ties and loses against the best peer."""
    lines = []
    for protocol in ("composite", "held-out SpO2"):
        runs = [r for found in result["sets"].values() for r in found[protocol]]
        intervals = [run["minus the best peer"]["interval"] for run in runs]
        won = sum(low > 0.0 for low, _ in intervals)
        lost = sum(high < 0.0 for _, high in intervals)
        lines.append(
            f"{protocol[0].upper()}{protocol[1:]}: support is above the best peer in {won} of "
            f"{len(runs)} settings, below it in {lost}, within the interval in the rest."
        )
    lines.append(
        "The held-out protocol is a control: hours that differ in nothing that the key "
        "holds cannot be told apart by any rule that looks at keys alone, and are kept "
        "little more often than by chance."
    )
    return " ".join(lines)


def main() -> None:
    """Run, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--small", action="store_true", help="200 stays of each set")
    given = parser.parse_args()
    sets: dict[str, list[Stay]] = {}
    if given.data and (given.data / "physionet2012").is_dir():
        sets["PhysioNet 2012"] = list(physionet.read_2012(given.data / "physionet2012"))
    if given.data and (given.data / "physionet2019").is_dir():
        sets["PhysioNet 2019"] = list(physionet.read_2019(given.data / "physionet2019"))
    sets = sets or {"made stays": list(physionet.made(200))}
    if given.small:
        sets = {name: stays[:200] for name, stays in sets.items()}
    sizes = (10, 8, 3) if given.small else (100, 40, 20)
    result = benchmark(sets, *sizes)
    name = "icu_small" if given.small else "icu"
    print(section(result))
    figure(result, name)
    print(save(name, result))


if __name__ == "__main__":
    main()
