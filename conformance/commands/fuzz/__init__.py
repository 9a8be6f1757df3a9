"""Fuzz campaigns: deterministic shards in a database, judged by workers that may die, until time or cases are spent.

A campaign is a folder: `campaign.sqlite` and `cases/` with replay files. `spec` says what is judged, `shards` makes
the cases of a shard from its address, `budget` plans rounds of shards by coverage, `coordinator` commits, launches and
takes results, `executors` run workers here or on a Dask cluster, and `quarantine` decides about what went wrong.
"""
