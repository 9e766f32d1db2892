"""Scenario 37: one beginning of sequence, every end, templates and the lack of them."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")

from castsim.base.errors import ModelError, PromptError  # noqa: E402
from castsim.live.models.chat import end_ids, load_chat  # noqa: E402

BOS = 4


def chat(folder, template, bos=False, raw=False, thinking=False):
    tiny.save_tokenizer(folder, template, bos)
    return load_chat(str(folder), raw, thinking)


def user(text):
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("template", ["<s>" + tiny.TEMPLATE, "<s><s>" + tiny.TEMPLATE])
def test_a_template_that_writes_the_beginning_gives_exactly_one(tmp_path, template):
    ids = chat(tmp_path, template, bos=True).ids(user("hé\u2028"), "here")
    assert ids.count(BOS) == 1 and ids[0] == BOS


def test_raw_text_has_the_beginning_that_the_tokenizer_adds(tmp_path):
    with_bos = chat(tmp_path, None, bos=True, raw=True)
    assert with_bos.ids(user("a"), "here")[0] == BOS and len(with_bos.ids(user("a"), "here")) == 2
    assert with_bos.ids(user(""), "here") == [BOS]


@pytest.mark.parametrize("template", [None, tiny.TEMPLATE])
def test_an_empty_prompt_without_a_beginning_is_refused(tmp_path, template):
    with pytest.raises(PromptError, match=r"prompts\.jsonl, line 3: is an empty prompt"):
        chat(tmp_path, template, raw=template is None).ids(user(""), "prompts.jsonl, line 3")


def test_a_base_tokenizer_needs_raw(tmp_path):
    with pytest.raises(ModelError, match="has no chat template; use --raw"):
        chat(tmp_path, None)


def test_the_template_is_told_not_to_think_unless_asked(tmp_path):
    template = "{% if enable_thinking %}<a>{% else %}<u>{% endif %}{{ messages[0]['content'] }}"
    assert chat(tmp_path / "a", template).ids(user("x"), "here")[0] == 1
    assert chat(tmp_path / "b", template, thinking=True).ids(user("x"), "here")[0] == 2


def test_a_template_that_refuses_is_one_line(tmp_path):
    template = "{{ raise_exception('no system') }}"
    with pytest.raises(PromptError, match="is refused by the chat template"):
        chat(tmp_path, template).ids(user("x"), "here")


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    tiny.save_target(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / name).unlink(missing_ok=True)
    with pytest.raises(ModelError):
        load_chat(str(tmp_path), raw=True, thinking=False)


def test_every_end_of_sequence_counts():
    model = SimpleNamespace(
        generation_config=SimpleNamespace(eos_token_id=[8, 9, 7]),
        config=SimpleNamespace(get_text_config=lambda: SimpleNamespace(eos_token_id=8)),
    )
    assert end_ids(model, SimpleNamespace(eos_token_id=5)) == (5, 7, 8, 9)
    assert end_ids(model, SimpleNamespace(eos_token_id=None)) == (7, 8, 9)
