"""docs/config.md says what the dataclasses say."""

import importlib.util
from pathlib import Path

import pytest

from trafo.config import fields_table
from trafo.training.config import TrainConfig

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("make_config", DOCS / "make_config.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (DOCS / "config.md").read_text(encoding="utf-8")
    assert written == module.page(), "run `python docs/make_config.py`"


@pytest.mark.parametrize("setting", fields_table(TrainConfig), ids=lambda setting: setting.key)
def test_every_setting_says_what_it_does(setting):
    assert setting.help, f"{setting.key} has no string below it"
