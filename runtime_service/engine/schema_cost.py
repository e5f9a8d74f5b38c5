"""How often a validator looks at one place of an input: what keeps a schema from taking a service's time.

Branches that meet again in what they refer to, and schemas that refer to themselves twice in one place, are
looked at twice as often with every step: thirty steps in a few lines of JSON are a thousand million looks.
The library has no limit of its own, so the looks are counted beforehand, over the schema alone, from above.

- `looks` never says too little: a bound for the object or array alone, for each property, for each branch.
- A schema that leads to itself without going down into the input has no bound. It is refused.
- References lead within the schema, by JSON pointer; nothing is ever fetched.
"""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple
from urllib.parse import unquote

Schema = dict[str, Any]

MOST_LOOKS = 10_000_000
MOST_PATTERNS = 64  # each takes some 50 KiB for as long as its schema is kept

# Keywords whose schemas look at the same place, and at its parts.
_HERE = ("not", "if", "then", "else")
_HERE_LISTS = ("allOf", "anyOf", "oneOf")
_HERE_MAPS = ("dependentSchemas", "dependencies")
_UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")
_BELOW = ("additionalItems", "contains", "items", "propertyNames", *_UNEVALUATED)
# To find out what was not looked at, every branch is gone through again. Measured: under three times a level.
_AGAIN = 3
_REFUSED = ("$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$recursiveAnchor")


class SchemaRefused(Exception):
    """A schema is of a kind that is not taken. `str` is the sentence."""


class _Node(NamedTuple):
    weight: int
    again: int
    here: list[int]
    below: list[int]
    below_one_of: list[int]


def looks_by_depth(schema: Schema, most_deep: int) -> list[int]:
    """Bound the looks at one place of an input by how deep it lies: the last holds for all that lie deeper.

    A list that ends beyond `MOST_LOOKS` has no bound from there on. Raises `SchemaRefused`.
    """
    nodes = _graph(schema)
    order = _from_leaves(nodes)
    before = [0] * len(nodes)
    found: list[int] = []
    for depth in range(most_deep + 1):
        now = [0] * len(nodes)
        for at in order:
            node = nodes[at]
            own = node.weight if depth == 0 else _at_parts(node, before)
            now[at] = own + node.again * sum(now[other] for other in node.here)
        found.append(max([now[0], *found[-1:]]))
        if found[-1] > MOST_LOOKS or (depth and now == before):
            break
        before = now
    return found


def _at_parts(node: _Node, before: list[int]) -> int:
    one = max((before[other] for other in node.below_one_of), default=0)
    return one + sum(before[other] for other in node.below)


def _graph(root: Schema) -> list[_Node]:
    """Number every schema that the root leads to, itself 0, with where each leads."""
    numbers: dict[int, int] = {id(root): 0}
    found = [root]
    nodes: list[_Node] = []

    def number(schema: object) -> Iterator[int]:
        if isinstance(schema, dict):  # true and false cost nothing
            if id(schema) not in numbers:
                numbers[id(schema)] = len(found)
                found.append(schema)
            yield numbers[id(schema)]

    for schema in found:  # grows as it goes
        if schema is not root and "$id" in schema:
            raise SchemaRefused("A schema within the schema has an `$id`. Leave it out.")
        if wrong := next((key for key in _REFUSED if key in schema), None):
            raise SchemaRefused(f"`{wrong}` is not taken. Use `$ref` with a JSON pointer.")
        nodes.append(
            _Node(
                weight=1 + _compared(schema),
                again=_AGAIN if any(key in schema for key in _UNEVALUATED) else 1,
                here=[n for other in _here(schema, root) for n in number(other)],
                below=[n for other in _below(schema) for n in number(other)],
                below_one_of=[n for other in _below_one_of(schema) for n in number(other)],
            )
        )
    if sum(_patterns(schema) for schema in found) > MOST_PATTERNS:
        raise SchemaRefused(f"It has more than {MOST_PATTERNS} patterns.")
    return nodes


def _patterns(schema: Schema) -> int:
    return len(_map(schema.get("patternProperties"))) + ("pattern" in schema)


def _here(schema: Schema, root: Schema) -> Iterator[object]:
    if "$ref" in schema:
        yield _referred(root, schema["$ref"])
    yield from (schema[key] for key in _HERE if key in schema)
    for key in _HERE_LISTS:
        yield from _list(schema.get(key))
    for key in _HERE_MAPS:
        yield from _map(schema.get(key))


def _below(schema: Schema) -> Iterator[object]:
    yield from (schema[key] for key in _BELOW if key in schema)
    yield from _map(schema.get("patternProperties"))


def _below_one_of(schema: Schema) -> Iterator[object]:
    yield from _map(schema.get("properties"))
    yield from _list(schema.get("prefixItems"))
    yield schema.get("additionalProperties")


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _map(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, dict) else []


def _compared(schema: Schema) -> int:
    """Count what one look compares with and can find wrong. Texts or numbers of an `enum` are looked up."""
    options = _list(schema.get("enum"))
    alike = {type(option) for option in options} in ({str}, {int}, set())
    required = [_list(schema.get("required")), *map(_list, _map(schema.get("dependentRequired")))]
    return (0 if alike else len(options)) + sum(map(len, required)) + _patterns(schema)


def _referred(root: Schema, reference: object) -> object:
    if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
        raise SchemaRefused(
            "A `$ref` leads out of the schema, or to an anchor. Put what it means under `$defs`, and write "
            "`#/$defs/NAME`."
        )
    at: object = root
    for step in reference.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(at, list) and name.isdecimal() and int(name) < len(at):
            at = at[int(name)]
        elif isinstance(at, dict) and name in at:
            at = at[name]
        else:
            raise SchemaRefused(f"`{reference[:100]}` leads nowhere.")
    return at


def _from_leaves(nodes: list[_Node]) -> list[int]:
    try:
        return list(TopologicalSorter({at: node.here for at, node in enumerate(nodes)}).static_order())
    except CycleError:
        raise SchemaRefused("A `$ref` leads back to itself without going down into the input.") from None
