"""Orders from a queue, totals in Parquet, totals to a topic.

Read it from top to bottom, or run it cell by cell in an editor that knows `# %%`. It
needs a queue `orders` and a topic `totals`:

    pip install '/path/to/twinbus[spark]'
    export SERVICEBUS_CONNECTION_STRING='Endpoint=sb://...'
    python docs/examples/orders.py /tmp/orders
"""

# %% The session. `format("servicebus")` needs no registration and no jar.
from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

# Workers run the same Python as this file.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
folder = Path(sys.argv[1])
spark = SparkSession.builder.appName("orders").getOrCreate()
# Only the name of the variable travels; each machine reads it for itself.
bus = {"connectionStringEnv": "SERVICEBUS_CONNECTION_STRING"}

# %% Look at the queue first. Nothing is received, locked or counted by that.
waiting = spark.read.format("servicebus").options(**bus, entity="orders").load()
waiting.select("sequence_number", "enqueued_at", "subject").show(5)

# %% Consume it. Every message is in the spool before it leaves the queue, so that
# a batch that has to run again has the same rows.
messages = (
    spark.readStream.format("servicebus")
    .options(**bus, entity="orders", settle="spool")
    .option("spoolLocation", str(folder / "spool"))
    .load()
)
orders = messages.select(
    F.from_json(
        F.col("body").cast("string"),
        "placed_at timestamp, region string, amount decimal(10, 2)",
    ).alias("order")
).select("order.*")

# %% Totals for each minute and region. A minute is written when orders that are a minute
# younger have come; until then Spark keeps it.
totals = (
    orders.withWatermark("placed_at", "1 minute")
    .groupBy(F.window("placed_at", "1 minute"), "region")
    .agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
    .select(F.col("window.start").alias("minute"), "region", "orders", "amount")
)
query = (
    totals.writeStream.format("parquet")
    .option("checkpointLocation", str(folder / "checkpoint"))
    .trigger(availableNow=True)
    .start(str(folder / "totals"))
)
query.awaitTermination()
stored = spark.read.parquet(str(folder / "totals")).orderBy("minute", "region")
stored.show()

# %% Parquet to a topic. The id names what the message is about: this cell, run twice,
# sends nothing twice, if the topic has duplicate detection.
(
    stored.select(
        F.to_json(F.struct("minute", "region", "orders", "amount")).alias("body"),
        F.lit("application/json").alias("content_type"),
        F.col("region").alias("subject"),
        F.concat_ws("/", F.unix_seconds("minute"), "region").alias("message_id"),
        F.create_map(
            F.lit("orders"),
            F.struct(
                F.lit("long").alias("type"),
                F.col("orders").cast("string").alias("value"),
            ),
        ).alias("application_properties"),
    )
    .write.format("servicebus")
    .options(**bus, entity="totals")
    .mode("append")
    .save()
)
