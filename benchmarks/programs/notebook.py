"""A notebook run by nbclient: its loop counts right answers with one Python comparison for each row."""

from __future__ import annotations

from pathlib import Path

import nbformat
from beats import arguments
from nbclient import NotebookClient

CELLS = (
    """
import sys; sys.path.insert(0, FOLDER)
import torch
from beats import Beats
model = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows, labels = torch.randn(1024, 128), torch.randint(10, (1024,))
beats = Beats()
""",
    """
for step in range(STEPS):
    scores = model(rows)
    loss = torch.nn.functional.cross_entropy(scores, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if FIX == "count-at-once":
        right = int((scores.argmax(1) == labels).sum())
    else:
        right = sum(1 for guess, label in zip(scores.argmax(1), labels) if guess == label)  # slow
    beats.step()
beats.finish()
""",
)


def main() -> None:
    given = arguments(100, "count-at-once")
    first = f"FOLDER, STEPS, FIX = {str(Path(__file__).parent)!r}, {given.steps}, {given.fix!r}"
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in (first, *CELLS)])
    NotebookClient(book, timeout=600, kernel_name="python3").execute(cwd=str(Path.cwd()))
    for cell in book.cells:
        for output in cell.get("outputs", []):
            print(output.get("text", ""), end="")


if __name__ == "__main__":
    main()
