"""A search over seeds, laws and backends on several processes or machines."""
