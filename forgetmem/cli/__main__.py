"""`python -m forgetmem.cli` is the `forgetmem` command."""

from forgetmem.cli import main

main()
