"""Units: what is checked and written together, one class for each thing that happens (`runtime.md` R5.5).

Each is plain data that says which rows it needs, and a function of those rows. None of them does any I/O.
"""
