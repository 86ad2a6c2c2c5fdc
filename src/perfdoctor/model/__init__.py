"""What happened when, on which rank, device and thread?"""

from perfdoctor.system.own_process import load_numpy

load_numpy()
