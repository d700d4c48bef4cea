"""Networks. Importing this package registers them, so that Keras can load them from files."""

from convert_tf.models import bert as bert
from convert_tf.models import encoder as encoder
