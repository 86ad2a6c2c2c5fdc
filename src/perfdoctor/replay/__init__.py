"""What if: the recorded run as a graph of dependent work, simulated with a change."""
