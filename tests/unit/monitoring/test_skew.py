"""Skew by view: what one view gets wrong does not drown in the others."""

from __future__ import annotations

import pytest

from feature_repo.catalogue import VIEWS, feature_columns
from monitoring.skew import FeatureSkew, view_shares


@pytest.mark.parametrize("wrong", VIEWS)
def test_each_view_has_a_share_of_its_own(wrong: str) -> None:
    names = ("flight__hour", *feature_columns())
    shares = view_shares([FeatureSkew(feature=name, share=0.5 * name.startswith(f"{wrong}__")) for name in names])
    assert shares == {"flight": 0.0, **dict.fromkeys(VIEWS, 0.0), wrong: 0.5}
