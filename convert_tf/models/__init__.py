"""Networks. Importing this package registers them with Keras, which can then read `.keras` files."""

from convert_tf.models import bert as bert
from convert_tf.models import encoder as encoder
