"""`trainerd.keras.fit`: the arguments of Keras's `fit`, in a run that is driven by trainerd."""
