"""Native operators: which calls run natively, and what layers compute where these rest."""
