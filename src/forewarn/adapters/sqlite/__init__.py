"""The store on SQLite: the data folder, the database, its rows and its copies."""
