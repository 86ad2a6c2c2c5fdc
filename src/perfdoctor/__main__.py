"""`python -m perfdoctor`"""

from perfdoctor.cli.main import main

main()
