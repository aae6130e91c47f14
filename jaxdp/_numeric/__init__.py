"""Mathematics without privacy."""
