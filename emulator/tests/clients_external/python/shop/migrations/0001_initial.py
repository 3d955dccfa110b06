"""The tables in their first form."""

import uuid

from django.db import migrations, models


class Migration(migrations.Migration):
    """Create the tables."""

    initial = True
    operations = (
        migrations.CreateModel(
            "Product",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False, auto_created=True, verbose_name="ID")),
                ("title", models.CharField(max_length=20)),
                ("price", models.IntegerField(null=True)),
                ("added", models.DateTimeField(auto_now_add=True)),
                ("since", models.DateField(null=True)),
                ("lasts", models.DurationField(null=True)),
                ("traits", models.JSONField(default=dict)),
                ("photo", models.BinaryField(null=True)),
            ],
        ),
        migrations.CreateModel(
            "Tag",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False, auto_created=True, verbose_name="ID")),
                ("word", models.CharField(max_length=20, null=True, unique=True)),
            ],
        ),
        migrations.CreateModel(
            "Order",
            [
                ("id", models.UUIDField(primary_key=True, default=uuid.uuid4, serialize=False)),
                ("product", models.ForeignKey("shop.product", models.CASCADE, related_name="orders")),
                ("note", models.TextField(blank=True)),
                ("tags", models.ManyToManyField("shop.Tag")),
            ],
        ),
    )
