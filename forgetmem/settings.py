"""The settings of a memory: fixed at creation, stored, part of the digest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from forgetmem.errors import CorruptStoreError, InvalidInputError, SettingsMismatchError

_Real = Annotated[float, Field(allow_inf_nan=False)]


class Settings(BaseModel):
    """What a memory computes with.

    The defaults suit embedders whose cosines look like MiniLM's.

    Attributes
    ----------
    gamma : float
        Of the kernel ``exp(-gamma * squared_distance)``, > 0.
    C : float
        Box of the coefficients of each group's one-class SVM, > 0. 1 is the hard
        margin; a smaller C is ``1 / (nu * n)`` for a fixed n.
    link : float
        Cosine from which two vectors are in one group, in [-1, 1].
    diminish : float
        What a copy already given leaves of an answer, in [0, 1]; a record that is less
        alike leaves more.
    ridge : float
        Added to the diagonal of the kernel matrix, >= 0; part of the problem.
    alike : float
        Cosine from which two answers are look-alikes, in [-1, 1].
    max_group : int or None
        Most vectors that are solved together, >= 2; None for no limit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    gamma: _Real = Field(default=8.0, gt=0.0)
    C: _Real = Field(default=1.0, gt=0.0)
    link: _Real = Field(default=0.9, ge=-1.0, le=1.0)
    diminish: _Real = Field(default=0.1, ge=0.0, le=1.0)
    ridge: _Real = Field(default=1e-8, ge=0.0)
    alike: _Real = Field(default=0.9, ge=-1.0, le=1.0)
    max_group: int | None = Field(default=512, ge=2)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("a bool is no number")
        return value

    @classmethod
    def from_given(cls, given: Mapping[str, object]) -> Self:
        """Build settings from what a caller gave.

        Parameters
        ----------
        given : mapping of str to object

        Returns
        -------
        Settings

        Raises
        ------
        InvalidInputError
            If a value is out of its range or of a wrong type.
        """
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            raise InvalidInputError(
                f"{name}={first['input']!r} is no valid setting: {first['msg']}"
            ) from error

    @classmethod
    def from_stored(cls, stored: Mapping[str, object]) -> Self:
        """Read settings back from a file.

        Parameters
        ----------
        stored : mapping of str to object

        Returns
        -------
        Settings

        Raises
        ------
        CorruptStoreError
            If the file holds other names or impossible values.
        """
        try:
            return cls.model_validate({name: stored[name] for name in cls.model_fields})
        except (KeyError, ValidationError) as error:
            raise CorruptStoreError(
                "the settings in the file cannot be read", table="setting"
            ) from error

    def check_given(self, given: Mapping[str, object]) -> None:
        """Compare the stored settings with those a caller gave.

        Parameters
        ----------
        given : mapping of str to object
            Only the settings that were given.

        Raises
        ------
        SettingsMismatchError
            If one differs; the error names both values.
        """
        wanted = type(self).from_given({**self.model_dump(), **given})
        for name in given:
            stored, value = getattr(self, name), getattr(wanted, name)
            if stored != value:
                raise SettingsMismatchError(name, stored, value)
