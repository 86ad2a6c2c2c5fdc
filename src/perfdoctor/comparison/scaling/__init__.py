"""How does one training behave on more and more GPUs: what does it lose, where, and what would still more bring?"""
