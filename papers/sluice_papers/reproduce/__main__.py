"""python -m sluice_papers.reproduce"""

from sluice_papers.reproduce.command import main

main()
