"""The names of a step: its own name, its topics, and its texts in `describe()`, pictures and traces."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

__all__ = ["NUMBERED", "Form", "NamedStep"]

Form = Literal["topic", "recursion", "exchange", "variable", "step"]
"""The shape of a step in a picture."""
NUMBERED = re.compile(r"[A-Z-]+-\d{10}")
"""The pattern of a step's name if the author gave it none."""
_BETWEEN_WORDS = re.compile(r"(?<=.)(?=[A-Z])")


@dataclass(frozen=True, eq=False, kw_only=True)
class NamedStep:
    """A step's names. `label` is the nearest name given by the author."""

    name: str
    label: str

    drawn_as: ClassVar[Form] = "step"

    @property
    def written(self) -> str:
        """The author's name from which the step's name is made; the step's name if there is none."""
        return self.label if self.name.startswith(f"{self.label}-") else self.name

    def internal_topic(self, application: str) -> str | None:
        """Return the topic through which the step's rows reach their keys' owners; None if it needs no topic."""
        return None

    def gate_topic(self, application: str) -> str | None:
        """Return the topic through which the step's rows are sent, also if pictures do not show the topic."""
        return self.internal_topic(application)

    @property
    def user_topic(self) -> str | None:
        """The user's topic that the step reads or writes; None if there is none."""
        return None

    @property
    def does(self) -> str:
        """The step's action in a word or two."""
        return type(self).__name__.lower()

    @property
    def in_words(self) -> str:
        """The step in the author's words, for traces."""
        return f"{self.does} '{self.written}'"

    @property
    def title(self) -> str:
        """The first line of the step's text in a picture: its name, if the author gave it one."""
        return self.kind_of_step if NUMBERED.fullmatch(self.name) else self.name

    @property
    def kind_of_step(self) -> str:
        """The step's text in a picture if the author gave it no name."""
        return _BETWEEN_WORDS.sub(" ", type(self).__name__).lower()

    def headline(self, application: str, stores: Sequence[str]) -> str:
        """Return the step's text in `describe()`, with the names of its stores."""
        topic = self.internal_topic(application)
        return f"Processor: {self.name} (stores: [{', '.join(stores)}]{f', topic: {topic}' if topic else ''})"

    @property
    def shape(self) -> str:
        """The step's shape in a Mermaid flowchart, without its number."""
        return f'["{self.name}"]'

    @property
    def strategy(self) -> str | None:
        """How a recursion is computed, with the reason; None for other steps."""
        return None
