"""The downloader: parallel ranges into one part file, resumable after any kind of end, verified before it counts.

``ranges`` is arithmetic, ``part`` the files on disk, ``digest`` the hash that follows, ``wire`` the HTTP rules,
``transfer`` the fetching of one file.
"""
