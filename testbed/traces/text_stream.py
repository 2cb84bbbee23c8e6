"""The text of a trace file as it comes, so that a file may be larger than memory."""

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from testbed.errors import TraceError

# A file that can be read as often as needed: where it lies or, if it came out of a pipe, what it held.
TraceData = bytes | Path

# Of text: a line of any file, and the whole of one that is one link.
MAX_BYTES = 256 << 20
_BLOCK = 1 << 18
_GZIP_MAGIC = b"\x1f\x8b"
# Not read: which of its files is meant, or with what, is the user's to say.
_OTHERS = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
_LONGEST_MAGIC = max(map(len, _OTHERS))
_NO_UTF8 = re.compile("[\udc80-\udcff]")


def stream_text(data: TraceData, path: Path) -> Iterator[str]:
    """Yield UTF-8 text in blocks of whole lines, ends as ``\\n``, without gzip and a byte order mark around it.

    Raises
    ------
    TraceError
        The file cannot be read, is a broken gzip file or no UTF-8 text, or a line is longer than 256 MiB.
    """
    try:
        with io.BytesIO(data) if isinstance(data, bytes) else data.open("rb") as packed:
            begin = packed.read(_LONGEST_MAGIC)
            packed.seek(0)
            is_gzip = begin.startswith(_GZIP_MAGIC)
            for magic, kind in _OTHERS.items():
                if begin.startswith(magic):
                    raise TraceError(f"trace {path}: {kind}; plain UTF-8 text is wanted, or gzip of it")
            plain = gzip.GzipFile(fileobj=packed) if is_gzip else packed
            # bytes that are no UTF-8 come through as lone surrogates, so that their line can be named
            text = io.TextIOWrapper(plain, encoding="utf-8-sig", errors="surrogateescape")
            yield from _whole_lines(text, path)
    except EOFError:
        raise TraceError(f"trace {path}: the gzip file ends early") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"trace {path}: a broken gzip file: {error}") from None
    except OSError as error:
        raise TraceError(f"trace {path}: {error.strerror}") from error


def _whole_lines(text: io.TextIOWrapper, path: Path) -> Iterator[str]:
    number, begun = 1, ""
    while read := text.read(_BLOCK):
        whole, end, rest = read.rpartition("\n")
        if not end:
            # in place, as long as nothing else holds it: a line of many blocks is not copied for each
            begun += read
            if len(begun) > MAX_BYTES:
                raise TraceError(f"trace {path}, line {number}: more than {MAX_BYTES >> 20} MiB in one line")
            continue
        block = begun + whole + end
        begun = rest
        _check_text(block, path, number)
        number += block.count("\n")
        yield block
    if begun:
        _check_text(begun, path, number)
        yield begun


def _check_text(block: str, path: Path, number: int) -> None:
    if not block.isascii() and (wrong := _NO_UTF8.search(block)):
        line, byte = number + block.count("\n", 0, wrong.start()), ord(wrong[0]) - 0xDC00
        raise TraceError(f"trace {path}, line {line}: not UTF-8 text: byte {byte:#04x}")
