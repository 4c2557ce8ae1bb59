"""What is wrong with files of the formats that training programs save, without unpickling anything.

Each module has a quick check, which reads as little as finds a file that was cut at any place, and one that reads all.
They raise `opening.Damaged`.
"""
