"""Print results that a command also writes to files."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def printed_after_writing(text: str) -> Iterator[None]:
    """Print a result after the block has written it. If the block fails, print it all the same.

    The block comes first because the reader of standard output may have ended, as in
    `convert-tf … | head`. An error of the block takes precedence over an error of printing.

    Args:
      text: the result to print.

    Raises:
      OSError: if the text cannot be printed.
    """
    try:
        yield
    except BaseException:  # such as an interrupt
        with contextlib.suppress(OSError):
            print(text, flush=True)
        raise
    print(text)
