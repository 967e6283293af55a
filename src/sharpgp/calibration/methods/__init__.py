"""The methods, one file each; importing this package registers them.

==================  ===================================  ================================
name                location and spread                  scores that give ``beta``
==================  ===================================  ================================
``cv``              learned, pooled                      out of fold
``loo``             learned, pooled                      leave-one-out, closed form
``cv+``             learned again without each part      each part's own
``exact``           learned, pooled                      held out
``kuleshov18``      the GP's                             held out
``vovk20``          the GP's                             held out, randomised
``marx22``          the GP's mean, constant              held out
``paper``           the GP's mean, a sigma per level     held out, and they choose sigma
``vanilla``         the GP's                             none
==================  ===================================  ================================

A new method is one file here and one line below; one of another distribution is found by an entry
point of the group ``sharpgp.methods``.
"""

from sharpgp.calibration.methods.cross_validation import CrossValidated as CrossValidated
from sharpgp.calibration.methods.cv_plus import CVPlus as CVPlus
from sharpgp.calibration.methods.exact import Exact as Exact
from sharpgp.calibration.methods.kuleshov18 import Kuleshov18 as Kuleshov18
from sharpgp.calibration.methods.leave_one_out import LeaveOneOut as LeaveOneOut
from sharpgp.calibration.methods.marx22 import Marx22 as Marx22
from sharpgp.calibration.methods.sharp import Sharp as Sharp
from sharpgp.calibration.methods.vanilla import Vanilla as Vanilla
from sharpgp.calibration.methods.vovk20 import Vovk20 as Vovk20
