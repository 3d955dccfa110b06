import json

import pytest
from core_strategies import window_plans
from hypothesis import given

from floodmark.core.window.plan import WindowPlan
from floodmark.core.window.plan_json import FORMAT, plan_from_json, plan_to_json


@given(window_plans)
def test_plan_is_the_same_after_json(plan: WindowPlan) -> None:
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


@given(window_plans)
def test_plan_of_a_later_format_is_refused(plan: WindowPlan) -> None:
    with pytest.raises(ValueError, match="upgrade"):
        plan_from_json(plan_to_json(plan) | {"format": FORMAT + 1})
