"""The models of the shop, with fields of most types."""

import uuid

from django.db import models
from django.db.models import Q


class Product(models.Model):
    """A thing that is sold."""

    name = models.CharField(max_length=40, unique=True)
    price = models.DecimalField(max_digits=10, decimal_places=2)
    sold = models.BooleanField(default=False)
    added = models.DateTimeField(auto_now_add=True)
    since = models.DateField(null=True)
    lasts = models.DurationField(null=True)
    traits = models.JSONField(default=dict)
    photo = models.BinaryField(null=True)

    class Meta:
        constraints = (models.CheckConstraint(condition=Q(price__gte=0), name="product_price"),)


class Order(models.Model):
    """A product that was ordered."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    product = models.ForeignKey(Product, models.CASCADE, related_name="orders")
    note = models.TextField(blank=True)
    count = models.PositiveIntegerField(default=1)
    tags = models.ManyToManyField("Tag")

    class Meta:
        indexes = (models.Index(fields=("-count",), name="order_count"),)


class Tag(models.Model):
    """A word on orders. Words differ, except for none."""

    word = models.CharField(max_length=20, null=True, unique=True)
