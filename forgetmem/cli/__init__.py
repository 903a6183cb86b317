"""THE `forgetmem` COMMAND: reads arguments, calls a memory, shows what came back.

Results go to standard output, everything else (progress, warnings, errors) to standard
error. With ``--json`` standard output is one JSON document:

=========  ===========================================================================
add        ``{"added", "replaced", "stale", "ids", "skipped": [{"path", "reason"}]}``
search     ``{"hits": [Hit]}``
read       ``Readout``
get        ``{"records": [Record]}``
forget     ``{"forgotten", "not_found", "proof", "key", "document": ForgetProof}``
verify     ``Verdict``
audit      ``AuditReport``
prune      ``{"pruned", "certificates": [PruneCertificate]}``
compact    ``{"bytes_before", "bytes_after"}``
stats      what `ForgettableMemory.stats` returns
digest     ``{"digest"}``
=========  ===========================================================================

Exit code 0: done; 1: a verification or an audit failed; 2: the command was not
understood, or names what is not there; 3: it could not be carried out.
"""

from forgetmem.cli.commands import main, run

__all__ = ["main", "run"]
