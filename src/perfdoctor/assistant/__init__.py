"""What can an assistant ask of the recordings below one folder, over the Model Context Protocol?

`server` speaks the protocol and reads nothing; `worker` is another process, in which recordings are read within limits
of time and memory; `answers/` has one tool a file. What a recording says is data of strangers: it goes into fields,
shortened, and no answer asks anybody to do what a name says.
"""
