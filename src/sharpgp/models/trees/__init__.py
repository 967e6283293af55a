"""Trees as models: forests and gradient boosting, with laws of their own."""
