"""Fuzz campaigns: workers that may die judge deterministic shards from a database, up to a time or a number of cases.

A campaign is a folder: `campaign.sqlite` and `cases/` with replay files. `spec` names the targets, `shards` makes
the cases of a shard from its address, `budget` plans rounds of shards by coverage, `coordinator` commits, launches and
collects results, `executors` run workers here or on a Dask cluster, and `quarantine` decides how to handle a failure.
"""
