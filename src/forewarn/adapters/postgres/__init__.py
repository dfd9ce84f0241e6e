"""The store on PostgreSQL: sessions, the schema, and how a batch is written in one round trip."""
