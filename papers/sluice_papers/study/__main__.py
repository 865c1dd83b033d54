"""python -m sluice_papers.study"""

from sluice_papers.study.command import main

main()
