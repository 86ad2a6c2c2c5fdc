"""Why is this PyTorch training slow, what to change, and how much will it bring?"""

__version__ = "0.1.0"
