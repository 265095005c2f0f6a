"""What makes the machine of each algorithm in `viewkeeper.maintain.algorithm_catalogue`.

Apart from the catalogue, which settings and commands read that never run a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from viewkeeper.maintain.algorithm_protocol import Algorithm
from viewkeeper.maintain.eca import Eca
from viewkeeper.maintain.recompute import Recompute
from viewkeeper.maintain.strobe_family.c_strobe import make_c_strobe, make_c_t_strobe
from viewkeeper.maintain.strobe_family.conventional import Conventional
from viewkeeper.maintain.strobe_family.strobe import Strobe
from viewkeeper.maintain.strobe_family.t_strobe import make_g_strobe, make_t_strobe
from viewkeeper.maintain.sweep_family.batch_sweep import BatchSweep
from viewkeeper.maintain.sweep_family.nested_sweep import NestedSweep
from viewkeeper.maintain.sweep_family.pvm import make_pvm, make_pvm_cc
from viewkeeper.maintain.sweep_family.sweep import make_sweep

Make = Callable[..., Algorithm]
"""Called with the algebra, the sweep plan, the resume and the kind's options."""

MAKERS: Mapping[str, Make] = {
    "recompute": Recompute,
    "conventional": Conventional,
    "eca": Eca,
    "strobe": Strobe,
    "t_strobe": make_t_strobe,
    "g_strobe": make_g_strobe,
    "c_strobe": make_c_strobe,
    "c_t_strobe": make_c_t_strobe,
    "sweep": make_sweep,
    "nested_sweep": NestedSweep,
    "pvm": make_pvm,
    "pvm_cc": make_pvm_cc,
    "batch_sweep": BatchSweep,
}
