"""`sluice reproduce`: every figure and table of the papers, ours beside theirs.

rows.py        what a row of the manifest is
manifest.py    all rows, and those that a user asks for
p3*.py         rows of "Priority-based Parameter Propagation" (Jayarajan et al.)
mgwfbp*.py     rows of "MG-WFBP" (Shi et al.)
pipesgd*.py    rows of "Pipe-SGD" (Li et al.)
analysis*.py   rows of "An In-Depth Analysis of Distributed Training" (Ko et al.)
inputs.py      small models that rows give to the program
timeline.py    an event model of computing and a chain of links
plans.py, replays.py, trainings.py  numbers out of result files
ddp_link.py, pipe_training.py       programs that rows run
kept.py        result files      verdicts.py  what they say of a claim
tools.py       what the program can do, and what a part needs
runner.py      makes the file of one part
pictures.py    charts and time-lines as SVG
report.py      the page, and the same as Markdown
check.py       makes some rows again and compares
command.py     flags, progress, errors
"""
