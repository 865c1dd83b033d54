"""python -m sluice.demo"""

from sluice.demo.command import main

main()
