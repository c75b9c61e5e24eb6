"""Extra, instrumented runs after the verdict. They explain; they never decide."""
