"""The base of all data here: immutable, unknown keys refused; and the types that documents share. Pure."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Moment = Annotated[datetime, Field(ge=datetime(1970, 1, 2, tzinfo=UTC), lt=datetime(9999, 1, 1, tzinfo=UTC))]
"""A date that can be told in any zone."""


Seconds = Annotated[float, Field(ge=-1e10, le=1e10, allow_inf_nan=False)]
"""A duration, three centuries at most; below zero where a clock was set back."""


Bytes = Annotated[int, Field(ge=0, le=2**63)]


class Frozen(BaseModel):
    """Base of a document's parts."""

    # a schema is built when the first document of it is read or made: most commands read few kinds of them
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", defer_build=True)
