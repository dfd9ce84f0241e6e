"""Reading what people write: TOML with line numbers, fields and tables of them, lengths of time.

Text and values only: nothing here opens a file, and no format has its own rules here.
"""
