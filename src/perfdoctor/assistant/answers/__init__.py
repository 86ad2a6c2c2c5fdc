"""What does each tool answer? One file a tool: `answer(asked, desk)`."""
