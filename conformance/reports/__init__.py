"""What is made from a report: pages, files for other tools, differences and sums. Nothing here judges.

Everything is computed from the report's JSON (`reports.report`), so that it can be made anywhere and later.
"""
