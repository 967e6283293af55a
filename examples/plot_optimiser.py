"""
Optimise an experiment, and know when to stop
=============================================

Four inputs by name, some of them whole numbers, logarithms or categories; a result that is to be
small; a run that fails; and a loop that ends when little is left to gain.
"""

import math

from sharpgp.bo import Log, Optimiser


def cost(temperature, hours, catalyst, solvent):
    """Cost of a kilogram; too hot a run boils over."""
    if temperature > 75:
        return None
    distance = (temperature - 60) ** 2 / 200 + (hours - 6) ** 2 / 10
    return 5 + distance + (math.log10(catalyst) + 1.5) ** 2 + (solvent == "water")


# %%
# ``ask`` gives a dict, and ``tell`` takes it back, here by the run. ``None`` is a run that failed.
# ``stop`` asks whether 50 more runs would gain more than 0.5, and says yes at 5 %.

loop = Optimiser(
    {
        "temperature": (20, 80),
        "hours": range(1, 11),
        "catalyst": Log(1e-3, 1),
        "solvent": ["water", "ethanol"],
    },
    maximize=False,
)
while loop.n_runs < 40 and not loop.stop(amount=0.5):
    point = loop.ask()
    loop.tell(point, cost(**point))

print(loop.best())

# %%
# Results by run, whether they were where the model said, and what was left to gain.

loop.plot()
