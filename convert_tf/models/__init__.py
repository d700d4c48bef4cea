"""Networks. Importing this package registers them with Keras, so that it reads `.keras` files."""

from convert_tf.models import bert as bert
from convert_tf.models import encoder as encoder
