"""`python -m corvus_site.demo --listen 127.0.0.1:8090`."""

from __future__ import annotations

from corvus_site.demo.origin import main

if __name__ == "__main__":
    main()
