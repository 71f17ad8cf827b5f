"""`trainerd.Estimator`: what `tf.estimator.Estimator` was, on TensorFlow 1 graphs, trained in our sessions."""
