"""EXACT ONE-CLASS SVM in float64: knows rows, never ids, texts or files.

`OneClassSVM` learns and unlearns rows and ends, whatever the history, in the numbers
of a fit from scratch on the rows that are left. `fit_many` fits many small sets of rows
at once; `solution_certificate` bounds how far coefficients are from the optimum,
whoever found them.
"""

from __future__ import annotations

from forgetmem.svm.batch import (
    Solution,
    fit_many,
    solution_certificate,
    solution_certificates,
)
from forgetmem.svm.certificate import Certificate
from forgetmem.svm.gradient import Sensitivities, sensitivities
from forgetmem.svm.one_class import OneClassSVM
from forgetmem.svm.partition import Role

__all__ = [
    "Certificate",
    "OneClassSVM",
    "Role",
    "Sensitivities",
    "Solution",
    "fit_many",
    "sensitivities",
    "solution_certificate",
    "solution_certificates",
]
