#!/usr/bin/env python3
"""The one entry of a clone; the installed product has the same as the command `corvus`."""

from corvus_site.command import main

if __name__ == "__main__":
    main()
