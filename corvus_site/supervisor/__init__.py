"""`manage.py up`: starts, watches and drains the product's processes. No Django is imported here.

`launch` makes the product's plan, `supervising` runs a plan, `children` keeps one child alive.
"""
