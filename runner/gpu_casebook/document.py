"""The base of every JSON document that the package writes."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Base of everything in the evidence: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
