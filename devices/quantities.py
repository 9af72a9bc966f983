"""Scalar types of documents, each with the numbers or names that it allows."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

NonNegative: TypeAlias = Annotated[float, Field(ge=0)]
Positive: TypeAlias = Annotated[float, Field(gt=0)]
Size: TypeAlias = Annotated[int, Field(ge=0)]
"""Bytes."""
WholeNumber: TypeAlias = Annotated[int, Field(ge=0)]
"""An index, or a number of things from 0 on."""
Count: TypeAlias = Annotated[int, Field(ge=1)]
"""A number of things from 1 on."""
Port: TypeAlias = Annotated[int, Field(ge=1, le=65535)]
Name: TypeAlias = Annotated[str, Field(min_length=1)]
