"""Conversations as text, by the template that a model brings. A template is a program: it runs in jinja2's sandbox."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from longwave.data.tokens import tokens_of
from longwave.errors import UserError


def chat_prompt(home: Path | None, messages: Sequence[Mapping[str, str]]) -> str:
    """The text after which the model answers; a message is dict(role="user", content="...")."""
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as missing:
        raise UserError("a conversation needs: pip install 'longwave[chat]'") from missing

    def refuse(why: str) -> NoReturn:
        raise TemplateError(why)

    template, words = _template(home)
    around = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    around.globals["raise_exception"] = refuse
    try:
        text = around.from_string(template).render(messages=messages, add_generation_prompt=True, **words)
    except Exception as problem:  # of any kind: it is their program
        raise UserError(f"the chat template in {home} does not take this conversation: {problem}") from problem
    tokens = tokens_of(home)
    if tokens.prompt(text) != tokens.encode(text):  # the tokenizer puts the first token there itself
        text = text.removeprefix(words.get("bos_token", ""))
    return text


def _template(home: Path | None) -> tuple[str, dict[str, str]]:
    """The template, and the special tokens it speaks of."""
    file = home / "tokenizer_config.json" if home is not None else None
    if home is None or file is None or not file.is_file():
        raise UserError(f"the model in {home} has no chat template: it lacks a tokenizer_config.json")
    try:
        about = dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as problem:
        raise UserError(f"{file} is damaged: it is not a group of values") from problem
    found: Any = about.get("chat_template")
    own = home / "chat_template.jinja"
    if own.is_file():
        found = own.read_text(encoding="utf-8", errors="replace")
    if isinstance(found, list):  # several, by name
        found = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}.get("default")
    if not isinstance(found, str):
        raise UserError(f"{file} has no chat template: this model was not taught to converse")
    words = {name: about.get(name) for name in ("bos_token", "eos_token")}
    plain = {name: word.get("content") if isinstance(word, dict) else word for name, word in words.items()}
    return found, {name: word for name, word in plain.items() if isinstance(word, str)}
