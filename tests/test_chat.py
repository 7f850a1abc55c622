"""Conversations: the same text as transformers makes of the same template; a bad template does nothing but fail."""

import json

import pytest
from transformers import PreTrainedTokenizerFast

from longwave.data.chat import chat_prompt
from longwave.errors import UserError
from test_gguf import tokenizer

TALK = [dict(role="user", content="the cat"), dict(role="assistant", content="sat"), dict(role="user", content="on?")]
CHATML = """{%- for message in messages %}
    {{- '<|' + message['role'] + '|>' + message['content'] + eos_token }}
{% endfor %}
{% if add_generation_prompt %}
<|assistant|>
{% endif %}"""


def folder(path, template):
    tokenizer(path)
    (path / "tokenizer_config.json").write_text(json.dumps(dict(eos_token="<end>", chat_template=template)))
    return path


def test_the_same_text_as_transformers(tmp_path):
    folder(tmp_path, CHATML)
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    wanted = theirs.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True)
    assert chat_prompt(tmp_path, TALK) == wanted
    assert "<|user|>on?<end>" in wanted
    folder(tmp_path, [dict(name="tools", template="no"), dict(name="default", template=CHATML)])
    assert chat_prompt(tmp_path, TALK) == wanted


@pytest.mark.parametrize("template", [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{% for %}", "{{ raise_exception('no system') }}",
    "{{ messages.append(1) }}", "{% for i in range(999999999) %}{% endfor %}", 7, None,
])  # fmt: skip
def test_bad_templates_are_told_apart(template, tmp_path):
    with pytest.raises(UserError, match="template"):
        chat_prompt(folder(tmp_path, template), TALK)


def test_without_a_template(tmp_path):
    with pytest.raises(UserError, match="no chat template"):
        chat_prompt(tmp_path, TALK)
