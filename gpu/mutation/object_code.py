"""Digests of the machine code of single functions in relocatable object files, to find unchanged functions.

A function's digest covers its section's bytes and relocations, and those of all that it reaches, in all objects given.
Compile with -ffunction-sections and -fdata-sections. ELF of 64 bits, little-endian; other objects are one digest each.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_SYMTAB, _RELA, _NOBITS = 2, 4, 8
_UNDEFINED, _RESERVED = 0, 0xFF00
_FUNCTION, _SECTION = 2, 3


@dataclass
class _Section:
    """One section: its bytes, and (place, kind, addend, target) of its relocations; a target is a section or a name."""

    name: str
    bytes: bytes
    relocations: list[tuple[int, int, int, int | str]] = field(default_factory=list)


@dataclass
class _Object:
    sections: dict[int, _Section]
    functions: dict[str, tuple[int, int]]  # exported name -> (section, offset)


def _cut(text: bytes, start: int) -> str:
    return text[start : text.index(b"\0", start)].decode()


def _read(data: bytes) -> _Object | None:
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    table, size, count, names = struct.unpack_from("<Q10xHHH", data, 40)
    heads = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    text = data[heads[names][4] : heads[names][4] + heads[names][5]]
    body = [data[head[4] : head[4] + head[5]] if head[1] != _NOBITS else bytes(8) for head in heads]
    read = _Object({i: _Section(_cut(text, head[0]), body[i]) for i, head in enumerate(heads)}, {})
    symbols: list[tuple[int, int | str]] = []  # (offset in a section, section or the name of what lies elsewhere)
    for i, head in enumerate(heads):
        if head[1] != _SYMTAB:
            continue
        strings = body[head[6]]
        for place in range(0, len(body[i]), 24):
            name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", body[i], place)
            outside = section == _UNDEFINED or section >= _RESERVED
            symbols.append((value, _cut(strings, name) if outside else section))
            if info & 15 == _FUNCTION and info >> 4 and not outside:
                read.functions[_cut(strings, name)] = (section, value)
    for i, head in enumerate(heads):
        if head[1] == _RELA:
            for place in range(0, len(body[i]), 24):
                offset, info, addend = struct.unpack_from("<QQq", body[i], place)
                value, target = symbols[info >> 32]
                read.sections[head[7]].relocations.append((offset, info & 0xFFFFFFFF, addend + value, target))
    return read


CODE = (".text.", ".nv.constant", ".nv.global", ".nv.shared")


def device_digest(data: bytes) -> str:
    """Return the digest of a cubin's code and constants; what it says of its compiler's options is left out."""
    read = _read(data)
    sections = {} if read is None else {s.name: s.bytes for s in read.sections.values() if s.name.startswith(CODE)}
    text = "\n".join(f"{name} {hashlib.sha256(sections[name]).hexdigest()}" for name in sorted(sections))
    return hashlib.sha256(text.encode() if sections else data).hexdigest()


def function_digests(paths: Iterable[Path]) -> dict[str, str]:
    """Return exported function -> digest of the machine code that it consists of and reaches.

    An object that cannot be read gives its file's name -> digest of the file.
    """
    objects: list[_Object] = []
    digests: dict[str, str] = {}
    for path in paths:
        data = Path(path).read_bytes()
        one = _read(data)
        if one is None:
            digests[Path(path).name] = hashlib.sha256(data).hexdigest()
        else:
            objects.append(one)
    where = {name: (i, section) for i, one in enumerate(objects) for name, (section, _) in one.functions.items()}
    for name, start in where.items():
        digests[name] = _reached(objects, where, start)
    return digests


def _reached(objects: list[_Object], where: dict[str, tuple[int, int]], start: tuple[int, int]) -> str:
    """SHA-256 over all sections that are reached from one, numbered in the order in which they are met."""
    total, met, todo = hashlib.sha256(), {start: 0}, [start]
    while todo:
        number, index = todo.pop(0)
        section = objects[number].sections[index]
        total.update(struct.pack("<Q", len(section.bytes)) + section.bytes)
        for offset, kind, addend, target in sorted(section.relocations, key=lambda one: one[0]):
            key = where.get(target) if isinstance(target, str) else (number, target)
            if key is not None and key not in met:
                met[key] = len(met)
                todo.append(key)
            total.update(f"{offset} {kind} {addend} {target if key is None else met[key]}\n".encode())
    return total.hexdigest()
