"""`sluice study`: trains the same model with many algorithms, numbers of workers and seeds, and
compares what comes out with what "An In-Depth Analysis of Distributed Training of Deep Neural
Networks" (Ko et al.) has found.

    settings.py    what is asked for          flags.py  how it is asked for
    wanted.py      the runs that it takes     tuning.py the search for a learning rate
    algorithms.py  what a study has to know of an algorithm
    schedule.py    the learning rate
    data.py        images            network.py  the model
    board.py       memory that the workers of a run share with whoever started them
    worker.py      what a rank does  ranks.py    processes, by fork
    runner.py      one run: from settings to a row of results
    time_parts.py  the parts of a step's time, from traces
    results.py     rows, and means and spreads of them
    statistics.py  differences and their margins
    paper.py       what they have measured
    order.py       whether their order of accuracy is ours
    charts.py      SVG               figures.py, tables.py, words.py  what the page shows
    report.py      the page, and the same as Markdown
    command.py     making runs, errors        progress.py  what is said meanwhile
"""
