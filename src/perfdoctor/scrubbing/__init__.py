"""How is a recording copied without names of machines and users, and secrets?"""
