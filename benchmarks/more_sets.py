"""The comparison of ``benchmarks/peers.py`` on thirty sets outside the paper.

Run with ``python benchmarks/more_sets.py --out results.csv --methods rk,exact,cv``.  Protocol,
methods and tables are those of ``benchmarks/peers.py``; the sets are in
``benchmarks/extra_sets.py``, and nothing has to be downloaded.
"""

from comparison.command import main
from extra_sets import SETS, load

if __name__ == "__main__":
    main(__doc__, list(SETS), load)
