import json

import pytest
from hypothesis import HealthCheck, given, settings

from core_strategies import window_plans
from floodmark.core.plan import WindowPlan
from floodmark.core.plan_json import FORMAT, plan_from_json, plan_to_json

# A plan is large: on a busy machine the making of examples takes longer than Hypothesis allows by default.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@patient
@given(window_plans)
def test_plan_is_the_same_after_json(plan: WindowPlan) -> None:
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


@patient
@given(window_plans)
def test_plan_of_a_later_format_is_refused(plan: WindowPlan) -> None:
    with pytest.raises(ValueError, match="upgrade"):
        plan_from_json(plan_to_json(plan) | {"format": FORMAT + 1})
