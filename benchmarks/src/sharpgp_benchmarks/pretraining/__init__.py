"""Generated tables, and the training of the network that sharpgp ships on them."""
