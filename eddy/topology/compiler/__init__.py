"""From a plan to operators: the circuit, and the bodies of its loops."""
