"""What the layers have in common."""

import inspect
from typing import Any

import keras


class ConfiguredLayer(keras.layers.Layer):
    """A layer that keeps each of its constructor's arguments as an attribute of that name.

    Masking: none of its own.

    Its configuration is those attributes, from which `from_config` makes the layer again. A layer
    that is used with another is no part of it: the layer that is made again has one of its own.
    """

    def get_config(self) -> dict[str, Any]:
        names = [
            parameter.name
            for kind in type(self).__mro__
            if issubclass(kind, ConfiguredLayer) and "__init__" in vars(kind)
            for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]
            if parameter.kind is not parameter.VAR_KEYWORD
        ]
        values = {name: getattr(self, name) for name in names}
        own = {k: None if isinstance(v, keras.Layer) else v for k, v in values.items()}
        return {**super().get_config(), **own}
