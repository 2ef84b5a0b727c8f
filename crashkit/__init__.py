"""crashkit: does a store of conversations keep what it said it had kept?

Give it a class that opens your store in a folder. It runs the store in processes of their own, ends
them with SIGKILL, fills the disk, changes bytes, and reads what is left. It needs nothing but
Python, and knows nothing about any store.

    class MyStore:
        version = "1.0"                            shown in the table
        offers = {"keys"}                          of: keys, expect, stream; what else it can do

        def __init__(self, folder): ...            open the store in this folder, or make it
        def append(self, values, key=None, expect=None): ...
                                                   store some texts, all or none; when it returns,
                                                   they are stored
        def read(self): ...                        every text, in order
        def write(self, piece): ...                stream: store a piece of an answer, then show it
        def shown(self): ...                       stream: all pieces together

`key`: the same key again stores nothing more. `expect`: refuse, by raising, unless so many texts
are there. A check that needs what a store does not offer is "not offered": counted and shown.

    python -m crashkit list
    python -m crashkit run store my_module:MyStore
    python -m crashkit score results/*.json
"""
