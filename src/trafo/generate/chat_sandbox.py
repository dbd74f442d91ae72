"""The program that renders chat templates, in a process with little memory; see `chat_template.py`.

Each line of the input is a JSON object with a template and its variables, each line of the output
one with the text or the error. Nothing of trafo is imported. The environment is that of
transformers' `apply_chat_template`.
"""

import json
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any

_MOST_MEMORY = 512 << 20
_LONGEST = 4 << 20  # characters


def main() -> None:
    """Render until the input ends."""
    _limit_memory()
    for line in sys.stdin.buffer:
        sys.stdout.write(json.dumps(_answer(json.loads(line))) + "\n")
        sys.stdout.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        text = _compile(request["source"]).render(request["variables"])
    except ImportError:
        return {"missing": "jinja2"}
    except MemoryError:
        return {"error": f"it takes more than {_MOST_MEMORY >> 20} MB"}
    except Exception as error:  # whatever a program may raise
        line = getattr(error, "lineno", None)
        where = "" if line is None else f"line {line}: "
        return {"error": f"{where}{error}" if str(error) else type(error).__name__}
    if len(text) > _LONGEST:
        return {"error": f"it writes {len(text):,} characters"}
    return {"text": text}


@lru_cache(maxsize=4)
def _compile(source: str) -> Any:
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks the assistant's words for training; here it does nothing."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def as_json(value: Any, ensure_ascii: bool = False, **settings: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **settings)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = as_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(source)


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))


if __name__ == "__main__":
    main()
