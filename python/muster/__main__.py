"""python -m muster: the command line of the installation that this Python imports.

`--pkgconfigdir` prints where its pkg-config file is, for drivers and workers in C:

    export PKG_CONFIG_PATH=$(python -m muster --pkgconfigdir)
"""

import os
import sys
from pathlib import Path

from muster._session.programs import find_executable


def pkgconfig_dir() -> Path:
    """In the package, as a wheel has it, or in the prefix that the package is in."""
    package = Path(__file__).resolve().parent
    for folder in (package, *package.parents):
        for pattern in ("lib*/pkgconfig/muster.pc", "lib*/*/pkgconfig/muster.pc"):
            if found := sorted(folder.glob(pattern)):
                return found[0].parent
    sys.exit(f"there is no muster.pc in or above {package}")


def main(arguments: list[str]) -> None:
    if arguments == ["--pkgconfigdir"]:
        print(pkgconfig_dir())
        return
    program = find_executable()
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
