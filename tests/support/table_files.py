"""One table in every file format that is read."""

import csv
import gzip
import io
import json

import duckdb


def as_csv(names, rows, delimiter=","):
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([names, *rows])
    return file.getvalue().encode()


def as_json_lines(names, rows):
    return b"".join(json.dumps(dict(zip(names, row, strict=True))).encode() + b"\n" for row in rows)


def as_one_value(names, rows):
    objects = [dict(zip(names, row, strict=True)) for row in rows]
    return json.dumps({"version": 1, "data": objects}, indent=1).encode()


def write_parquet(path, names, rows, types=None):
    with duckdb.connect() as connection:
        types = types or ["VARCHAR"] * len(names)
        columns = ", ".join(f'"{name}" {kind}' for name, kind in zip(names, types, strict=True))
        connection.execute(f"CREATE TABLE t ({columns})")
        if rows:
            places = ", ".join("?" * len(names))
            connection.executemany(f"INSERT INTO t VALUES ({places})", rows)
        quoted = str(path).replace("'", "''")
        connection.execute(f"COPY t TO '{quoted}' (FORMAT parquet)")


def write_tables(folder, names, rows):
    """Write the same table in every file format."""
    contents = {
        "a.csv": as_csv(names, rows),
        "a.tsv": as_csv(names, rows, "\t"),
        "semicolons.csv": as_csv(names, rows, ";"),
        "a.jsonl": as_json_lines(names, rows),
        "a.json": as_one_value(names, rows),
        "packed.csv.gz": gzip.compress(as_csv(names, rows)),
        "wide.csv": as_csv(names, rows).decode().encode("utf-16"),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    write_parquet(folder / "a.parquet", names, rows)
    return [folder / name for name in (*contents, "a.parquet")]
