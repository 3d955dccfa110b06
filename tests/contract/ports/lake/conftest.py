"""The lake of each folder below. A Java that starts takes as much of the processor as ten windows."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from lake_rig import LakeRig, open_lake

_LAKE = pytest.StashKey[LakeRig]()


@pytest.fixture(scope="module")
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, shared_dir: Path) -> LakeRig:
    """The lake, which ends with the last test of the folder: later tests of this process have a Java of their own."""
    folder = request.node.getparent(pytest.Dir)
    if _LAKE not in folder.stash:
        opened = ExitStack()
        folder.addfinalizer(opened.close)
        folder.stash[_LAKE] = opened.enter_context(open_lake(tmp_path_factory.mktemp("lake"), shared_dir))
        opened.callback(folder.stash.__delitem__, _LAKE)
    return folder.stash[_LAKE]


@pytest.fixture
def rig(lake: LakeRig) -> LakeRig:
    """The lake with a pipeline and a target that nothing has used."""
    return lake.fresh_lake()
