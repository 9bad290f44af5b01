"""One module a page; each has ``page()``, which yields its lines."""
