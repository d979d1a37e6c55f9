"""An endpoint of the open MetaRoCE profile in plain Python, written from the specification alone."""
