"""An application of Django, which ``django_shop.py`` migrates and queries."""
