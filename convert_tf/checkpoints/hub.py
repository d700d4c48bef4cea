"""Encoders of the Hugging Face hub by name, as `convert-tf export --format huggingface` wrote them.

The library `huggingface_hub` downloads them into its cache. `HF_HUB_OFFLINE=1` reads the cache
alone.
"""

from pathlib import Path

from convert_tf.checkpoints.kinds import CONFIG_FILE, ONNX_FILES, TOKENIZER_FILE, Kind, kind_of
from convert_tf.extras import needs

SCHEME = "hf://"


class HubError(ValueError):
    """Error: there is no such encoder on the hub or in its cache."""


def hub_folder(address: str) -> str:
    """Return the folder of an encoder in the cache of `huggingface_hub`; downloaded if it is not.

    Args:
      address: `hf://owner/name`.

    Raises:
      HubError: if `huggingface_hub` is not installed, the encoder cannot be downloaded, or the
        model is another one.
    """
    try:
        return _downloaded(address.removeprefix(SCHEME))
    except (ImportError, OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), repr(error)).rstrip(". ")
        raise HubError(
            f"{address!r} was not read from the Hugging Face hub or its cache: {reason}."
        ) from error


def _downloaded(name: str) -> str:
    with needs("huggingface", "The hub"):
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError

    def download(*files: str, revision: str | None = None) -> Path:
        """Download the first of the files that the model has."""
        for file in files:
            try:
                return Path(hf_hub_download(name, file, revision=revision))
            except EntryNotFoundError as error:
                problem = error
        raise FileNotFoundError(f"{files[-1]} is missing there ({problem})") from problem

    folder = download(CONFIG_FILE).parent
    if kind_of(folder) is not Kind.HUGGING_FACE_ENCODER:
        raise ValueError(f"it is {kind_of(folder).value}, not {Kind.HUGGING_FACE_ENCODER.value}")
    # The other files have the revision of the first, even if somebody publishes a new one now.
    for files in ((TOKENIZER_FILE,), ONNX_FILES):
        download(*files, revision=folder.name)
    return str(folder)
