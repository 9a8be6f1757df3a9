"""Structure as data: shapes, counts, places and forms of calls, each asked on values that show every misplacement.

`structure_rows` gives what is asked of a variant, `build` the case of a row.
"""

from .build import build
from .plan import Asked, structure_cases

__all__ = ["Asked", "build", "structure_cases"]
