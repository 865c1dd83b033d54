"""All rows of P3: A. Jayarajan et al., Priority-based Parameter Propagation for Distributed DNN
Training, SysML 2019."""

from sluice_papers.reproduce import p3_examples, p3_measured

ROWS = (*p3_examples.ROWS, *p3_measured.ROWS)
