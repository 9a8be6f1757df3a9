"""Errors of campaigns."""

from refnum.errors import FileError, RefnumError


class CampaignError(RefnumError):
    """A campaign folder is missing, in use, of another kind, or cannot be written."""


class DiskFullError(CampaignError, FileError):
    """No room for the database; every committed shard is kept."""


class UnlikeCampaignError(CampaignError):
    """Two campaigns judged other things or with another model, so that they cannot be merged."""


class ConflictError(CampaignError):
    """Two campaigns ran the same shard and saw different results: something is not deterministic."""


class WorkerError(RefnumError):
    """Workers cannot be started, or cannot do what they were asked."""
