"""The JSON Schema of case.yaml, from which editors complete and check manifests."""

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from gpu_casebook.manifest.model import Manifest

SCHEMA = "cases/case.schema.json"


class _SchemaWriter(GenerateJsonSchema):
    """Leaves out titles, which only repeat the names of the keys, and forbids keys that match no pattern."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False

    def dict_schema(self, schema: Any) -> JsonSchemaValue:
        written = super().dict_schema(schema)
        return written | {"additionalProperties": False} if "patternProperties" in written else written


def schema_text() -> str:
    """Return what cases/case.schema.json should hold: draft 2020-12."""
    schema = Manifest.model_json_schema(schema_generator=_SchemaWriter)
    written = {"$schema": _SchemaWriter.schema_dialect, **schema, "title": "Casebook case"}
    return json.dumps(written, indent=2) + "\n"


def write_schema(root: Path) -> Path:
    """Write the schema in the checkout at `root`."""
    path = root / SCHEMA
    path.write_text(schema_text(), encoding="utf-8")
    return path
