"""
Six optimisations as a laboratory has them
==========================================

A mixture, a forbidden region, a limit on an impurity, two objectives, a campaign that goes on from
a spreadsheet, and a robot with four places at one temperature. The experiments are formulas here.
"""

import math

import pandas as pd

from sharpgp.bo import Mixture, Optimiser

# %%
# Four solvents
# -------------
# They sum to one, at most three are used, and two of them are flammable.


def solubility(water, ethanol, acetone, thf):
    """Grams in a litre; best with ethanol and acetone together and a little water."""
    return 40 + 90 * ethanol * acetone + 35 * water * ethanol - 30 * thf**2 - 20 * water**2


loop = Optimiser(
    dict.fromkeys(["water", "ethanol", "acetone", "thf"], (0, 1)),
    constraints=[Mixture("water", "ethanol", "acetone", "thf", at_most=3), "acetone + thf <= 0.4"],
)
while loop.n_runs < 16:
    blend = loop.ask()
    loop.tell(blend, solubility(**blend))
print(loop.best())
loop.results().round(2).tail()

# %%
# A forbidden region
# ------------------
# Steps of five degrees; the vessel boils over where temperature and concentration are both high.


def safe(temperature, concentration):
    """What the safety sheet says."""
    return temperature * concentration < 180


def rate(temperature, concentration, hours):
    """Largest beyond what is safe."""
    return concentration * math.exp((temperature - 60) / 40) - 0.1 * (hours - 6) ** 2


loop = Optimiser(
    {"temperature": (20, 100, 5), "concentration": (0.5, 5), "hours": range(1, 13)},
    constraints=[safe],
)
while loop.n_runs < 16:
    point = loop.ask()
    loop.tell(point, rate(**point))
print(loop.best().x, safe(loop.best().x["temperature"], loop.best().x["concentration"]))

# %%
# A yield with an impurity limit
# ------------------------------
# Both are measured. One run fails, which counts against it.


def synthesis(temperature, hours, base):
    """Hot and long runs have the best yield, and too much of the by-product."""
    if base == "KOH" and temperature > 90:
        return None
    heat, strength = (temperature - 40) / 60, {"KOH": 1.0, "NaOH": 0.9, "Et3N": 0.6}[base]
    return {
        "yield": 95 * strength * (1 - math.exp(-(0.3 + heat) * hours / 2)),
        "impurity": 0.08 + 0.9 * heat**2 * strength + 0.03 * hours,
    }


loop = Optimiser(
    {"temperature": (40, 100), "hours": (1, 8), "base": ["KOH", "NaOH", "Et3N"]},
    objectives={"yield": "max"},
    limits=["impurity <= 0.5"],
)
while loop.n_runs < 20:
    point = loop.ask()
    loop.tell(point, synthesis(**point))
print(loop)
loop.predict_feasible([{"temperature": 95, "hours": 7, "base": "NaOH"}])

# %%
# Two objectives
# --------------
# Yield and cost of the same experiment; the picture has the front with its intervals.


def priced(temperature, hours):
    """Heat and time cost money."""
    heat = (temperature - 40) / 60
    return {
        "yield": 90 * (1 - math.exp(-(0.3 + heat) * hours / 2)),
        "cost": 3 + 4 * heat + 1.5 * hours,
    }


loop = Optimiser(
    {"temperature": (40, 100), "hours": (1, 8)}, objectives={"yield": "max", "cost": "min"}
)
while loop.n_runs < 16:
    point = loop.ask()
    loop.tell(point, priced(**point))
loop.plot()

# %%
loop.front().round(1)

# %%
# On from a spreadsheet
# ---------------------
# Last year's runs were in another building, where all was a little better. The campaign is a
# category that is given and not chosen, so that the shape is learned from both.


def measured(temperature, hours, campaign):
    """The same optimum, another level."""
    return 70 - (temperature - 65) ** 2 / 40 - (hours - 5) ** 2 + 4 * (campaign == "2025")


sheet = pd.DataFrame(
    {
        "temperature": [45, 60, 80, 50, 75, 90, 65, 55],
        "hours": [2, 7, 4, 6, 8, 3, 3, 4],
        "campaign": "2025",
        "operator": "AB",
    }
)
sheet["yield"] = [
    measured(*row)
    for row in sheet[["temperature", "hours", "campaign"]].itertuples(index=False, name=None)
]

loop = Optimiser(
    {"temperature": (40, 100), "hours": (1, 8), "campaign": ["2025", "2026"]},
    context=["campaign"],
)
loop.tell(sheet, "yield")
for _ in range(6):
    point = loop.ask(fixed={"campaign": "2026"})
    loop.tell(point, measured(**point))
loop.best(fixed={"campaign": "2026"})

# %%
# A robot with four places
# ------------------------
# All four have the temperature of the block; the robot doses in steps.

loop = Optimiser({"temperature": (30, 90, 10), "reagent": (0, 2, 0.1), "stirring": (200, 800, 50)})
for temperature in (40, 60, 80, 60, 60):
    plate = loop.ask(4, fixed={"temperature": temperature})
    results = [
        50
        - (well["temperature"] - 60) ** 2 / 50
        - 20 * (well["reagent"] - 1.2) ** 2
        - ((well["stirring"] - 500) / 200) ** 2
        for well in plate
    ]
    loop.tell(plate, results)
print(loop.best())
loop.remaining(amount=1)
