"""Floor 4: the paper's experiments as tasks that any engine can run and that can be resumed."""

from sharpgp.experiments.runner import Summary, run
from sharpgp.experiments.store import Store
from sharpgp.experiments.task import Outcome, Task

__all__ = ["Outcome", "Store", "Summary", "Task", "run"]
