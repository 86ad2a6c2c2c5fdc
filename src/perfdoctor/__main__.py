"""`python -m perfdoctor`"""

from perfdoctor.entry import main

main()
