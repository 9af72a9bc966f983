"""Forms: whatever is sent, a form is valid or refused in one sentence, and names no path."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.documents.document import DocumentError
from devices.errors import InputError
from server.form import FIELDS, FILES, JobForm, read_form

TEXTS = st.sampled_from(["", "1", "-1", "1e999", "nan", "auto", "true", "ram", "64KiB", "dscnn"])
FILE_NAMES = st.text(st.sampled_from("abC1._-/\\:\0 é"), max_size=12)


@given(
    texts=st.dictionaries(
        st.sampled_from([*FIELDS, "else"]),
        st.lists(TEXTS | st.text(max_size=20), max_size=2),
        max_size=6,
    ),
    files=st.dictionaries(st.sampled_from([*FILES, "else"]), FILE_NAMES, max_size=3),
)
def test_any_form_is_valid_or_refused_in_sentences(
    texts: dict[str, list[str]], files: dict[str, str]
) -> None:
    try:
        form = read_form(texts, files)
    except InputError as error:
        # A line for each of the first fields that are wrong, without what only a terminal obeys.
        lines = str(error).split("\n")
        if not all(line and line.isprintable() and len(line) < 2000 for line in lines):
            pytest.fail(str(error))
        return
    assert JobForm.model_validate_json(form.model_dump_json()) == form
    assert (form.source is None) == form.has_graph


@given(st.text(max_size=300) | FILE_NAMES, st.sampled_from([".pt2", ".onnx", ".PT2", ".py", ""]))
def test_an_uploaded_network_gets_a_plain_name_in_its_directory(stem: str, suffix: str) -> None:
    files = {"network_file": stem + suffix}
    try:
        form = read_form({"profile": ["m4"]}, files)
    except DocumentError:
        assert PurePath(files["network_file"].replace("\\", "/")).suffix.lower() not in {
            ".pt2",
            ".onnx",
        }
        return
    assert form.network_file is not None
    path = PurePath(form.network_file)
    assert path.name == form.network_file
    assert path.suffix in {".pt2", ".onnx"}
    assert form.network_file.isascii()
    assert form.network_file.isprintable()
    assert len(form.network_file) < 100


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({"accumulate": ["auto"]}, {"accumulate": "auto"}),
        ({"accumulate": ["4"]}, {"accumulate": 4}),
        ({"train": ["head", "bias"]}, {"train": ("head", "bias")}),
        ({"no_paging": ["true"], "batch": [""]}, {"no_paging": True, "batch": None}),
    ],
)
def test_texts_become_values(fields: dict[str, list[str]], form: dict[str, Any]) -> None:
    read = read_form({"network": ["dscnn"], "profile": ["m4"], **fields}, {})
    assert {name: getattr(read, name) for name in form} == form
