"""The pictures of the documentation, drawn by programs: `make pictures`, `make readme-picture`.

What a picture says of the code is a value here; `tests/test_pictures.py` checks it.
"""
