"""How is a recording copied without what it tells of a machine, its users and their secrets?"""
