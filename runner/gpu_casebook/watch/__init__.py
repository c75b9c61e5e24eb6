"""Whether the newest releases still have the failure: the cases tried again with what came out since."""
