"""How are the reports of a folder read in a browser: what lies there, on which page, and who may see it?"""
