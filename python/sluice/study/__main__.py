"""python -m sluice.study"""

from sluice.study.command import main

main()
