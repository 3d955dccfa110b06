"""Migrate and query the database of the environment with mssql-django. It prints one line for each answer."""

import os
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import django
from django.conf import settings

settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "mssql",
            "HOST": os.environ["HOST"],
            "PORT": os.environ["PORT"],
            "NAME": os.environ["DATABASE"],
            "USER": os.environ["LOGIN"],
            "PASSWORD": os.environ["PASSWORD"],
            "OPTIONS": {"python_driver": os.environ["PYTHON_DRIVER"], "extra_params": "Encrypt=yes"},
        }
    },
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "shop"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    SECRET_KEY="of this run",
    USE_TZ=True,
)
django.setup()

from django.contrib.auth import authenticate  # noqa: E402
from django.contrib.auth.models import Permission, User  # noqa: E402
from django.contrib.sessions.backends.db import SessionStore  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, connection, transaction  # noqa: E402
from django.db.models import Avg, Count, Exists, F, OuterRef, Q, Sum, Value, Window  # noqa: E402
from django.db.models.functions import Concat, ExtractYear, RowNumber, TruncMonth, Upper  # noqa: E402
from shop.models import Order, Product, Tag  # noqa: E402


def migrate() -> None:
    """Create every table, and find the models and the tables alike."""
    call_command("migrate", verbosity=0)
    call_command("migrate", verbosity=0)
    call_command("makemigrations", check_changes=True, verbosity=0)
    print("migrated", [(row.name, row.price, row.sold) for row in Product.objects.all()])
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, "shop_product").values()
    kinds = ("primary_key", "unique", "check", "foreign_key")
    found = [(next(kind for kind in kinds if each[kind]), each["columns"]) for each in constraints]
    print("constraints", sorted(found))


def use_contrib() -> None:
    """Log in a user, and store a session."""
    User.objects.create_user("ada", "ada@example.org", "lovelace")
    print("login", authenticate(username="ada", password="lovelace"), authenticate(username="ada", password="x"))
    print("permissions", Permission.objects.filter(content_type__app_label="shop").count())
    session = SessionStore()
    session["cart"] = {"items": [1, "ü"]}
    session.save()
    print("session", SessionStore(session.session_key)["cart"])


def store_and_find() -> None:
    """Store rows with values of every field, and query them."""
    values = {"since": date(1815, 12, 10), "lasts": timedelta(days=2, microseconds=5), "photo": b"\x00\x01\xff"}
    crab = Product.objects.create(
        name="Crab 🦀", price=Decimal("12.50"), traits={"legs": [8, 2], "sea": "Nordsee"}, **values
    )
    crab.refresh_from_db()
    print("stored", crab.name, crab.price, crab.since, crab.lasts, crab.traits, bytes(crab.photo))
    print("recent", timedelta() <= datetime.now(UTC) - crab.added < timedelta(minutes=1), bool(crab.added.microsecond))
    Product.objects.bulk_create(
        [Product(name=f"n{i:03}", price=i, since=date(2024, 1 + i % 12, 1)) for i in range(300)]
    )
    print("page", [row.name for row in Product.objects.filter(name__startswith="n").order_by("-price")[10:13]])
    print("json", Product.objects.filter(traits__sea="Nordsee", traits__legs__0=8).count())
    print("text", Product.objects.filter(Q(name__icontains="CRAB") | Q(name__in=["n001", "n002"])).count())
    months = (
        Product.objects.annotate(month=TruncMonth("since")).values("month").annotate(n=Count("id"), all=Sum("price"))
    )
    print(
        "months",
        [(row["month"], row["n"], row["all"]) for row in months.filter(since__year=2024).order_by("month")[:2]],
    )
    numbered = Product.objects.annotate(
        place=Window(RowNumber(), order_by=F("price").desc()), year=ExtractYear("since")
    )
    print("window", list(numbered.order_by("place").values_list("place", "name", "year")[:2]))
    print("changed", Product.objects.filter(price__lt=10).update(price=F("price") * 2, sold=True))
    print(
        "made",
        Product.objects.update_or_create(name="n001", defaults={"price": 7})[1],
        Tag.objects.get_or_create(word="x")[1],
    )
    Tag.objects.bulk_create([Tag(word=None), Tag(word=None)])
    orders = [Order(product=crab, count=count, note="é" * 5000) for count in (3, 4)]
    Order.objects.bulk_create(orders)
    orders[0].tags.set(Tag.objects.all())
    names = Order.objects.select_related("product").prefetch_related("tags").order_by("count")
    print("joined", [(row.product.name, len(row.note), row.tags.count()) for row in names])
    sold = Product.objects.filter(Exists(Order.objects.filter(product=OuterRef("pk")))).annotate(
        mean=Avg("orders__count")
    )
    print("exists", list(sold.values_list(Upper(Concat("name", Value("!"))), "mean")))
    both = Product.objects.filter(price=298).union(Product.objects.filter(price=299))
    print("union", sorted(both.values_list("name", flat=True)))


def use_transactions() -> None:
    """Undo and refuse changes."""
    with transaction.atomic():
        Tag.objects.create(word="kept")
        try:
            with transaction.atomic():
                Tag.objects.create(word="half")
                Tag.objects.create(word="x")
        except IntegrityError as error:
            print("refused", "2627" in str(error) or "2601" in str(error) or "duplicate" in str(error))
        print("locked", Tag.objects.select_for_update().get(word="kept").word)
    try:
        Product.objects.create(name="negative", price=-1)
    except IntegrityError as error:
        print("checked", "product_price" in str(error))
    print("words", sorted(Tag.objects.exclude(word=None).values_list("word", flat=True)))
    print("deleted", Product.objects.get(name__startswith="Crab").delete()[1])


migrate()
use_contrib()
store_and_find()
use_transactions()
call_command("flush", interactive=False, verbosity=0)
print("flushed", Product.objects.count(), User.objects.count())
call_command("migrate", "shop", "zero", verbosity=0)
print("left", sorted(name for name in connection.introspection.table_names() if name.startswith("shop")))
