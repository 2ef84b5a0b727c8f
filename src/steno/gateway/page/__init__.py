"""The page at `/`: sessions in a browser. The server renders everything; the scripts in `static/`
put what comes over one stream into what is there, and the page can be read and used without them.
"""
