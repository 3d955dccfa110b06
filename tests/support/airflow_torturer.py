"""Draws what Airflow does, what of it is killed, and when, over and over, and sees each run end well."""

from __future__ import annotations

import random
import threading

from airflow_rig import STATES, AirflowRig

# What a run needs by and large: moments are drawn from it.
_WORK_SECONDS = (0.0, 12.0)
_VICTIMS = ("task", "worker", "scheduler", "machine", "dag-processor", "triggerer", "api-server")
_BACKFILLS: tuple[dict[str, object], ...] = ({}, {"run_backwards": True}, {"max_active_runs": 2})


class AirflowTorturer:
    def __init__(self, rig: AirflowRig, seed: int) -> None:
        self._rig = rig
        self._seed = seed
        self._random = random.Random(seed)

    def torture(self, kills: int) -> None:
        for number in range(kills):
            print(f"seed {self._seed}, kill {number + 1} of {kills}")
            if self._random.random() < 0.5:
                self._kill_inside()
            else:
                self._kill_somewhere()

    def _kill_inside(self) -> None:
        """In the last transaction of a task, which is let go on at once, or when the next try has begun."""
        rig, task, victim = self._rig, self._random.choice(tuple(STATES)), self._random.choice(_VICTIMS)
        is_held = victim in ("worker", "scheduler", "machine") and self._random.random() < 0.5
        with rig.gate(task) as gate:
            triggered = rig.trigger()
            gate.wait_for(task)
            run = rig.run_of(task)
            tries = rig.tries(run, task)
            print(f"{victim} in {task}" + (", held" if is_held else ""))
            rig.kill(victim, task)
            if is_held:
                rig.wait_for_try(run, task, tries + 1)
        rig.wait_for_success(run, triggered)

    def _kill_somewhere(self) -> None:
        """Wherever a run is: in a task, between two, or at its end."""
        rig, victim = self._rig, self._random.choice(_VICTIMS)
        if rig.may_backfill() and self._random.random() < 0.5:
            rig.backfill(**self._random.choice(_BACKFILLS))
            runs = rig.backfill_runs()
        else:
            runs = [rig.trigger()]
        threading.Event().wait(self._random.uniform(*_WORK_SECONDS))
        print(f"{victim} in {', '.join(rig.running_tasks()) or 'no task'}")
        rig.kill(victim)
        rig.wait_for_success(*runs)
