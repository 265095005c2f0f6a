"""Long answers of the JVM: whole, by whichever thread they are read, also after many of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from viewkeeper.engine.spark.prompt_answers import _PromptReader, hasten_answers

SIZES = (1, 8_191, 8_192, 8_193, 100_000)


def read_answers(spark: SparkSession) -> type[object]:
    """Read answers of several sizes; the class of what has read them."""
    for size in SIZES:
        text = spark.sql(f"SELECT repeat('ä', {size}) AS x").first()
        assert text is not None
        assert text["x"] == "ä" * size
        quoted = spark._jvm.java.util.Collections.nCopies(size, "a").toString()  # type: ignore[union-attr]  # it is open
        assert quoted == "[" + ", ".join("a" * size) + "]"
    client = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]  # it is open
    return type(client.get_thread_connection().stream.raw)


def test_long_answers_are_whole(spark: SparkSession) -> None:
    hasten_answers(spark)
    hasten_answers(spark)
    assert read_answers(spark) is _PromptReader


def test_every_thread_has_its_own_reader(spark: SparkSession) -> None:
    def read_in_thread(prompt: bool) -> type[object]:
        read_answers(spark)
        if prompt:
            hasten_answers(spark)
        return read_answers(spark)

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        assert one.submit(read_in_thread, True).result() is _PromptReader
        assert other.submit(read_in_thread, False).result() is not _PromptReader
