"""T-SQL as text: tokens, the statements of a batch, and the parser. It knows neither the engine nor the catalog."""
