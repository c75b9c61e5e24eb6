"""The columns, from the lines themselves."""

import json


def reference(lines):
    rows = [json.loads(line) for line in lines]
    return {name: [row[name] for row in rows] for name in ("number", "text")}
