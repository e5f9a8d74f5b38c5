"""Fields joined so that no two lists of fields give the same bytes.

Every hash of the product is taken over `lp(field)`: its length as 4 bytes, big-endian, and its bytes. Texts
are UTF-8, numbers decimal text (teaching.md T4.2).
"""


def lp(*fields: str | int | bytes) -> bytes:
    """Join fields, each behind its length."""
    out = bytearray()
    for field in fields:
        data = field if isinstance(field, bytes) else str(field).encode()
        out += len(data).to_bytes(4, "big")
        out += data
    return bytes(out)
