"""What `causeway --json` prints is what docs/json-schema.json says."""

import functools
import json

import jsonschema

from . import ROOT


@functools.cache
def validators():
    """One for each command."""
    whole = json.loads((ROOT / "docs" / "json-schema.json").read_text())
    make = jsonschema.Draft202012Validator
    return {name: make({**schema, "$defs": whole["$defs"]}) for name, schema in whole["properties"].items()}


def validated(words, document):
    """The document, if it is what the command's schema says. `words`: the command, options among them."""
    aliases = {"virtual-disk": "space"}
    plain = [aliases.get(str(word), str(word)) for word in words if not str(word).startswith("-")]
    name = next((name for n in range(len(plain), 0, -1) if (name := " ".join(plain[:n])) in validators()), None)
    assert name, f"no schema for {plain}"
    validators()[name].validate(document)
    return document
