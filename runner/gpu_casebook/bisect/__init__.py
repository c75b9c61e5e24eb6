"""Which release of a package introduced a failure, or fixed it: versions tried in turn, each in an environment."""
