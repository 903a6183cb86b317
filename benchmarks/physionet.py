"""Hourly vitals of the PhysioNet/CinC Challenges 2012 and 2019 (intensive care)."""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

VITALS = ("HR", "SysABP", "MAP", "RespRate", "SpO2", "Temp")
#: What stands in for a vital that a stay lacks: the non-invasive measurement.
INSTEAD = {"NISysABP": "SysABP", "NIMAP": "MAP", "SaO2": "SpO2"}
#: The columns of 2019.
COLUMNS = {
    "HR": "HR",
    "SBP": "SysABP",
    "MAP": "MAP",
    "Resp": "RespRate",
    "O2Sat": "SpO2",
    "Temp": "Temp",
}
HOURS = 48


@dataclass(frozen=True)
class Stay:
    """What was measured in each hour of a stay.

    Parameters
    ----------
    number : str
    measured : ndarray of shape (48, 6), float64
        NaN where nothing was measured in the hour.
    """

    number: str
    measured: np.ndarray

    def rows(
        self, vitals: Iterable[str], most: int = HOURS, *, padded: bool = False
    ) -> np.ndarray | None:
        """Fill forward the hours at which all of these vitals are known.

        Parameters
        ----------
        vitals : iterable of str
        most : int
            So many hours at most, from the first on.
        padded : bool
            Go on to the 48th hour with what was measured last.

        Returns
        -------
        ndarray of shape (hours, vitals), float64, or None
            None if one of them was never measured.
        """
        hours = self.hours(vitals, most, padded=padded)
        columns = [VITALS.index(vital) for vital in vitals]
        if not len(hours):
            return None
        known = ~np.isnan(self.measured[:, columns])
        latest = np.maximum.accumulate(
            np.where(known, np.arange(HOURS)[:, np.newaxis], 0), axis=0
        )
        return np.take_along_axis(self.measured[:, columns], latest, axis=0)[hours]

    def hours(
        self, vitals: Iterable[str], most: int = HOURS, *, padded: bool = False
    ) -> np.ndarray:
        """Return the hours that `rows` has."""
        columns = [VITALS.index(vital) for vital in vitals]
        known = ~np.isnan(self.measured[:, columns])
        if not known.any(axis=0).all():
            return np.arange(0)
        seen = np.flatnonzero(~np.isnan(self.measured).all(axis=1))
        first, end = int(known.argmax(axis=0).max()), int(seen.max()) + 1
        return np.arange(first, min(first + most, HOURS if padded else end))


def read_2012(folder: Path, sets: tuple[str, ...] = ("a", "b")) -> Iterator[Stay]:
    """Yield all stays of the sets that are in the folder, as ``set-a.csv.xz``.

    The first measurement of an hour counts.
    """
    places = {name: place for place, name in enumerate(VITALS)}
    places |= {name: places[vital] for name, vital in INSTEAD.items()}
    for name in sets:
        if not (folder / f"set-{name}.csv.xz").exists():
            continue
        stay = Stay("", _nothing())
        with lzma.open(folder / f"set-{name}.csv.xz", "rt") as file:
            for line in file:
                time_of, parameter, value = line.rstrip().split(",")
                if parameter == "RecordID":
                    yield from [stay] if stay.number else []
                    stay = Stay(value, _nothing())
                elif parameter in places and float(value) > 0.0:
                    _note(stay, int(time_of[:2]), places[parameter], float(value))
        yield stay


def read_2019(folder: Path) -> Iterator[Stay]:
    """Yield all stays of ``training_setB_part.psv.xz``, the first 48 hours of each."""
    stay = Stay("", _nothing())
    with lzma.open(folder / "training_setB_part.psv.xz", "rt") as file:
        header = file.readline().rstrip("\n").split("|")
        places = [(header.index(c), VITALS.index(v)) for c, v in COLUMNS.items()]
        hour_of = header.index("ICULOS")
        for line in file:
            cells = line.rstrip("\n").split("|")
            if cells[0] != stay.number:
                yield from [stay] if stay.number else []
                stay = Stay(cells[0], _nothing())
                first = int(cells[hour_of])
            for column, place in places:
                if cells[column]:
                    hour = int(cells[hour_of]) - first
                    _note(stay, hour, place, float(cells[column]))
    yield stay


def _nothing() -> np.ndarray:
    return np.full((HOURS, len(VITALS)), np.nan)


def _note(stay: Stay, hour: int, place: int, value: float) -> None:
    if hour < HOURS and np.isnan(stay.measured[hour, place]):
        stay.measured[hour, place] = value


def made(count: int, seed: int = 2012) -> Iterator[Stay]:
    """Stays of the same character: random walks of rounded vitals, some at risk."""
    rng = np.random.default_rng(seed)
    start = np.array([85.0, 120.0, 80.0, 19.0, 97.0, 37.0])
    step = np.array([4.0, 6.0, 4.0, 1.5, 0.7, 0.15])
    worse = np.array([50.0, -45.0, -30.0, 10.0, -9.0, 2.0])
    for number in range(count):
        walk = start + 0.6 * np.cumsum(step * rng.normal(size=(HOURS, 6)), axis=0)
        begin, length = int(rng.integers(30)), int(rng.integers(2, 6))
        walk[begin : begin + length] += worse * (rng.random() < 0.7)
        hours = np.maximum(np.round(walk, 1), 1.0)
        hours[:, 4] = np.minimum(hours[:, 4], 100.0)
        hours[1:][rng.random((HOURS - 1, 6)) < 0.2] = np.nan
        yield Stay(f"made-{number}", hours)
