"""python -m sluice.reproduce"""

from sluice.reproduce.command import main

main()
