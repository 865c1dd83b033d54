"""python -m sluice.doctor"""

from sluice.doctor.command import main

main()
