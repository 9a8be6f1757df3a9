"""The agreement matrix: every peer that is installed, against every profile of every operation that it has.

`inputs` makes the rows that all are given, `cells` judges one cell, `run` goes through them, `document` is the JSON
and the Markdown. Known disagreements are data in the peers' files; the matrix tells them from new ones.
"""
