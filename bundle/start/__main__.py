"""The first thing that runs in the file: is this the Python that it was built for?

Any Python must be able to read this module, Python 2 as well, or it could not say that it is the
wrong one: no annotations, no f-strings, nothing that is not needed for the answer.
"""
# mypy: allow-untyped-defs, allow-untyped-calls

import json
import os
import platform
import sys
import sysconfig
import zipfile

EXIT_USAGE = 2


def stop(sentence):
    """Say why, and end."""
    sys.stderr.write("forewarn: " + sentence + "\n")
    sys.exit(EXIT_USAGE)


def start(archive):
    """Run the command line that is packed in the archive, or say why it cannot run here."""
    opened = zipfile.ZipFile(archive)
    try:
        build = json.loads(opened.read("build.json").decode("utf-8"))
    finally:
        opened.close()
    here = str(sysconfig.get_config_var("SOABI")), platform.machine()
    if here != (build["abi"], build["machine"]):
        stop(
            "this file was built for Python " + build["python"]
            + " (" + build["abi"] + " on " + build["machine"] + "), and this is Python "
            + str(sys.version_info[0]) + "." + str(sys.version_info[1])
            + " (" + here[0] + " on " + here[1] + "); start it with the former, or take a file that"
            " was built for this one (`make dist` builds one with any Python from 3.11 on)."
        )  # fmt: skip
    import forewarn_unpack  # type: ignore[import-not-found] # noqa: PLC0415 - needs that Python

    folder = sys.path[0]
    try:
        folder = sys.path[0] = forewarn_unpack.unpacked(archive, build["content"])
        from forewarn.cli.main import main  # noqa: PLC0415 - see above
    except forewarn_unpack.CannotUnpack as why:
        stop(str(why))
    except ImportError as why:  # a C library that is older than the one it was built for
        stop("what is in " + folder + " cannot be used here: " + str(why) + "; if it is damaged,"
             " remove that folder.")  # fmt: skip
    main()


if __name__ == "__main__":
    start(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - see the top
