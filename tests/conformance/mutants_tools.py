"""Sources of the host build in which a change is compiled in few units: to compile all takes seconds."""

from typing import Any

from refnum.gpu.mutation.host import HostSources


def sources_of(*units: str) -> Any:
    """Return sources whose headers change some units alone, which hold every operation that is asked.

    They are linked first: where units share a function, the linker takes the first.
    """
    sources = HostSources()
    others = dict.fromkeys(sorted({*sources._units} - {*units}), frozenset[str]())
    vars(sources)["_units"] = {unit: sources._units[unit] for unit in units} | others
    return sources
