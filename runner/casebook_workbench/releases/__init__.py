"""Which release introduced a failure or fixed it (bisect), and whether the newest ones still have it (watch)."""
