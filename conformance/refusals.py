"""What a subject refused to answer, and whether dtypes, shapes and parameters explain it: if not, it looked inside."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from .calling.call import NO_ROOM
from .case import Case, plain

Form = tuple[str, ...]


def form(case: Case) -> Form:
    """Return all that a subject may refuse by: dtypes and shapes of the inputs, and parameters but the random key."""
    arrays = (f"{name} {array.dtype.name}{list(array.shape)}" for name, array in case.inputs.items())
    params = {name: True if name == "philox" else value for name, value in plain(case.params).items()}
    return (*arrays, json.dumps(params))


@dataclass
class Refusals:
    """The cases of one variant that a subject answered and refused.

    answered: forms of cases that it answered. refused: form -> how many it refused, an example and the words to it.
    domains: enumerable domain -> the words with which a part of it was not answered, though nothing declared so.
    """

    answered: set[Form] = field(default_factory=set)
    refused: dict[Form, tuple[int, str, str]] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)

    def answer(self, case: Case) -> None:
        """Note a case that was answered, right or wrong."""
        self.answered.add(form(case))

    def refuse(self, case: Case, words: str, declared: bool) -> None:
        """Note a case that was not. declared: the subject's declaration said so before it was called."""
        if case.domain and not declared:
            self.domains.setdefault(case.domain, words)
        if words.startswith(NO_ROOM):  # of the machine, not of the subject
            return
        count, example, first = self.refused.get(form(case), (0, f"{case} ({case.label})", words))
        self.refused[form(case)] = count + 1, example, first

    def unexplained(self) -> str:
        """Return in words what keeps a variant from being verified, or an empty string."""
        content = [self.refused[one] for one in self.refused if one in self.answered]
        if content:
            count, (_, example, words) = sum(number for number, _, _ in content), content[0]
            return (
                f"{count} cases were refused by content, though others of the same dtypes, shapes and parameters were "
                f"answered; for example {example}: {words}"
            )
        return "; ".join(f"{name} was left incomplete: {words}" for name, words in self.domains.items())
