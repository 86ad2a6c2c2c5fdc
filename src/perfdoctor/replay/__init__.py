"""What if: the recorded run as a graph of dependent work, played again with a change."""
