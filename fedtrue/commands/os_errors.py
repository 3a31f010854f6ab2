"""What the command line says if the operating system refuses to read or write. Imports nothing heavy."""

import errno
import os

CURES = {
    errno.ENOENT: "does not exist: give another path",
    errno.EACCES: "may not be read or written by this user: change its permissions, or give another path",
    errno.EPERM: "may not be read or written by this user: change its permissions, or give another path",
    errno.EISDIR: "is a folder: give a file",
    errno.ENOTDIR: "is not in a folder, as a part of its path is a file: give another path",
    errno.EEXIST: "exists, and is not a folder: give another path",
    errno.EROFS: "is on a file system that cannot be written: give another path",
    errno.ENOSPC: "cannot be written, the disk is full: free some space",
    errno.EDQUOT: "cannot be written, the quota is used up: free some space",
    errno.ENAMETOOLONG: "has a name that is too long: give a shorter one",
}


def os_error_text(error: OSError) -> str:
    """The file and the cure; an error that was raised with a text of ours has no number, and is that text."""
    if error.errno is None or error.filename is None:
        return str(error)
    reason = os.strerror(error.errno).lower()
    return f"{error.filename} {CURES.get(error.errno, f'cannot be read or written ({reason}): give another path')}"
