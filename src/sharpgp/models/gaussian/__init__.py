"""GPs as models: their own spread, or one that is learned."""
