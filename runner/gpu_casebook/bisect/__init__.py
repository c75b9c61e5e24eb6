"""Which release of a package brought a failure, or took it away: versions tried in turn, each in an environment."""
