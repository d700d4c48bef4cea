"""Print results that a command also writes to files."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def printed_after_writing(text: str) -> Iterator[None]:
    """Print a result after the `with` block that writes it to files, even if this block fails.

    The block runs first, because the program that reads standard output may already have ended, as
    in `convert-tf … | head`. If the block and the printing both fail, the block's error is raised.

    Args:
      text: the result to print.

    Raises:
      OSError: if the text cannot be printed.
    """
    try:
        yield
    except BaseException:  # including an interrupt, which is not an `Exception`
        with contextlib.suppress(OSError):
            print(text, flush=True)
        raise
    print(text)
