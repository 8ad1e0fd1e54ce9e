"""How results are shown: tables, figures, chapters, the terminal, published figures."""
