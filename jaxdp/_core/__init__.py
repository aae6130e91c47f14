"""Arrays, records, checks and execution: what every floor stands on."""
