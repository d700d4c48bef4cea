"""Base class of the layers."""

import inspect
from typing import Any

import keras


class ConfiguredLayer(keras.layers.Layer):
    """Layer that stores each constructor argument in an attribute of the same name.

    `get_config` collects these attributes, and `from_config` makes a new layer from them. An
    argument that is a layer is not part of the configuration: the new layer makes its own.
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
        config = {k: None if isinstance(v, keras.Layer) else v for k, v in values.items()}
        return {**super().get_config(), **config}
