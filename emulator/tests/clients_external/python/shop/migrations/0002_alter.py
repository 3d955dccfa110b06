"""The tables as the models have them: a column renamed, others altered and added, with the rows that are there."""

from django.db import migrations, models
from django.db.models import Q


def add_product(apps, schema_editor):
    """Store a row for the alterations to keep."""
    apps.get_model("shop", "Product").objects.create(title="Lamp", price=None)


def set_prices(apps, schema_editor):
    """Give every row a price."""
    apps.get_model("shop", "Product").objects.filter(price=None).update(price=3)


class Migration(migrations.Migration):
    """Alter the tables."""

    dependencies = (("shop", "0001_initial"),)
    operations = (
        migrations.RunPython(add_product, migrations.RunPython.noop),
        migrations.RenameField("Product", "title", "name"),
        migrations.AlterField("Product", "name", models.CharField(max_length=40, unique=True)),
        migrations.RunPython(set_prices, migrations.RunPython.noop),
        migrations.AlterField("Product", "price", models.DecimalField(max_digits=10, decimal_places=2)),
        migrations.AddField("Product", "sold", models.BooleanField(default=False)),
        migrations.AddConstraint("Product", models.CheckConstraint(condition=Q(price__gte=0), name="product_price")),
        migrations.AddField("Order", "count", models.PositiveIntegerField(default=1)),
        migrations.AddIndex("Order", models.Index(fields=("-count",), name="order_count")),
    )
