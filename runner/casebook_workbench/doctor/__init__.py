"""What this machine has against what the cases need: each shortcoming with the command that fixes it."""
