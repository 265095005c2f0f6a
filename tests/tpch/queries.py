"""The 22 queries of TPC-H as views, with the parameters that its validation uses.

In words of our own. Order and limit belong to reading a view, and are left out. Orders and their
items are in `sales` (PostgreSQL), customers, nations and regions in `people` (MariaDB), parts,
suppliers and their offers in `stock` (SQLite). What Q11 calls a share of everything depends on the
scale.
"""

from __future__ import annotations

REVENUE = "sum(l.l_extendedprice * (1 - l.l_discount))"

QUERIES = {
    1: """SELECT l.l_returnflag, l.l_linestatus, sum(l.l_quantity) AS sum_qty,
  sum(l.l_extendedprice) AS sum_base_price,
  sum(l.l_extendedprice * (1 - l.l_discount)) AS sum_disc_price,
  sum(l.l_extendedprice * (1 - l.l_discount) * (1 + l.l_tax)) AS sum_charge,
  avg(l.l_quantity) AS avg_qty, avg(l.l_extendedprice) AS avg_price,
  avg(l.l_discount) AS avg_disc, count(*) AS count_order
FROM sales.lineitem l WHERE l.l_shipdate <= DATE '1998-12-01' - INTERVAL 90 DAYS
GROUP BY l.l_returnflag, l.l_linestatus""",
    2: """SELECT s.s_acctbal, s.s_name, n.n_name, p.p_partkey, p.p_mfgr, s.s_address, s.s_phone
FROM stock.part p JOIN stock.partsupp ps ON ps.ps_partkey = p.p_partkey
JOIN stock.supplier s ON s.s_suppkey = ps.ps_suppkey
JOIN people.nation n ON n.n_nationkey = s.s_nationkey
JOIN people.region r ON r.r_regionkey = n.n_regionkey
WHERE p.p_size = 15 AND p.p_type LIKE '%BRASS' AND r.r_name = 'EUROPE'
AND ps.ps_supplycost = (SELECT min(q.ps_supplycost) FROM stock.partsupp q
  JOIN stock.supplier t ON t.s_suppkey = q.ps_suppkey
  JOIN people.nation m ON m.n_nationkey = t.s_nationkey
  JOIN people.region u ON u.r_regionkey = m.n_regionkey
  WHERE q.ps_partkey = p.p_partkey AND u.r_name = 'EUROPE')""",
    3: f"""SELECT l.l_orderkey, {REVENUE} AS revenue, o.o_orderdate, o.o_shippriority
FROM people.customer c JOIN sales.orders o ON o.o_custkey = c.c_custkey
JOIN sales.lineitem l ON l.l_orderkey = o.o_orderkey
WHERE c.c_mktsegment = 'BUILDING' AND o.o_orderdate < DATE '1995-03-15'
AND l.l_shipdate > DATE '1995-03-15'
GROUP BY l.l_orderkey, o.o_orderdate, o.o_shippriority""",
    4: """SELECT o.o_orderpriority, count(*) AS order_count FROM sales.orders o
WHERE o.o_orderdate >= DATE '1993-07-01' AND o.o_orderdate < DATE '1993-10-01'
AND EXISTS (SELECT 1 FROM sales.lineitem l
  WHERE l.l_orderkey = o.o_orderkey AND l.l_commitdate < l.l_receiptdate)
GROUP BY o.o_orderpriority""",
    5: f"""SELECT n.n_name, {REVENUE} AS revenue
FROM people.customer c JOIN sales.orders o ON o.o_custkey = c.c_custkey
JOIN sales.lineitem l ON l.l_orderkey = o.o_orderkey
JOIN stock.supplier s ON s.s_suppkey = l.l_suppkey AND s.s_nationkey = c.c_nationkey
JOIN people.nation n ON n.n_nationkey = s.s_nationkey
JOIN people.region r ON r.r_regionkey = n.n_regionkey
WHERE r.r_name = 'ASIA' AND o.o_orderdate >= DATE '1994-01-01'
AND o.o_orderdate < DATE '1995-01-01' GROUP BY n.n_name""",
    6: """SELECT sum(l.l_extendedprice * l.l_discount) AS revenue FROM sales.lineitem l
WHERE l.l_shipdate >= DATE '1994-01-01' AND l.l_shipdate < DATE '1995-01-01'
AND l.l_discount BETWEEN 0.05 AND 0.07 AND l.l_quantity < 24""",
    7: """SELECT q.supp_nation, q.cust_nation, q.l_year, sum(q.volume) AS revenue
FROM (SELECT n.n_name AS supp_nation, m.n_name AS cust_nation, year(l.l_shipdate) AS l_year,
    l.l_extendedprice * (1 - l.l_discount) AS volume
  FROM stock.supplier s JOIN sales.lineitem l ON l.l_suppkey = s.s_suppkey
  JOIN sales.orders o ON o.o_orderkey = l.l_orderkey
  JOIN people.customer c ON c.c_custkey = o.o_custkey
  JOIN people.nation n ON n.n_nationkey = s.s_nationkey
  JOIN people.nation m ON m.n_nationkey = c.c_nationkey
  WHERE ((n.n_name = 'FRANCE' AND m.n_name = 'GERMANY')
    OR (n.n_name = 'GERMANY' AND m.n_name = 'FRANCE'))
  AND l.l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31') q
GROUP BY q.supp_nation, q.cust_nation, q.l_year""",
    8: """SELECT q.o_year,
  sum(CASE WHEN q.nation = 'BRAZIL' THEN q.volume ELSE 0 END) / sum(q.volume) AS mkt_share
FROM (SELECT year(o.o_orderdate) AS o_year, l.l_extendedprice * (1 - l.l_discount) AS volume,
    m.n_name AS nation
  FROM stock.part p JOIN sales.lineitem l ON l.l_partkey = p.p_partkey
  JOIN stock.supplier s ON s.s_suppkey = l.l_suppkey
  JOIN sales.orders o ON o.o_orderkey = l.l_orderkey
  JOIN people.customer c ON c.c_custkey = o.o_custkey
  JOIN people.nation n ON n.n_nationkey = c.c_nationkey
  JOIN people.region r ON r.r_regionkey = n.n_regionkey
  JOIN people.nation m ON m.n_nationkey = s.s_nationkey
  WHERE r.r_name = 'AMERICA' AND o.o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
  AND p.p_type = 'ECONOMY ANODIZED STEEL') q
GROUP BY q.o_year""",
    9: """SELECT q.nation, q.o_year, sum(q.amount) AS sum_profit
FROM (SELECT n.n_name AS nation, year(o.o_orderdate) AS o_year,
    l.l_extendedprice * (1 - l.l_discount) - ps.ps_supplycost * l.l_quantity AS amount
  FROM stock.part p JOIN sales.lineitem l ON l.l_partkey = p.p_partkey
  JOIN stock.supplier s ON s.s_suppkey = l.l_suppkey
  JOIN stock.partsupp ps ON ps.ps_suppkey = l.l_suppkey AND ps.ps_partkey = l.l_partkey
  JOIN sales.orders o ON o.o_orderkey = l.l_orderkey
  JOIN people.nation n ON n.n_nationkey = s.s_nationkey
  WHERE p.p_name LIKE '%green%') q
GROUP BY q.nation, q.o_year""",
    10: f"""SELECT c.c_custkey, c.c_name, {REVENUE} AS revenue, c.c_acctbal, n.n_name,
  c.c_address, c.c_phone
FROM people.customer c JOIN sales.orders o ON o.o_custkey = c.c_custkey
JOIN sales.lineitem l ON l.l_orderkey = o.o_orderkey
JOIN people.nation n ON n.n_nationkey = c.c_nationkey
WHERE o.o_orderdate >= DATE '1993-10-01' AND o.o_orderdate < DATE '1994-01-01'
AND l.l_returnflag = 'R'
GROUP BY c.c_custkey, c.c_name, c.c_acctbal, c.c_phone, n.n_name, c.c_address""",
    11: """SELECT ps.ps_partkey, sum(ps.ps_supplycost * ps.ps_availqty) AS value
FROM stock.partsupp ps JOIN stock.supplier s ON s.s_suppkey = ps.ps_suppkey
JOIN people.nation n ON n.n_nationkey = s.s_nationkey WHERE n.n_name = 'GERMANY'
GROUP BY ps.ps_partkey
HAVING sum(ps.ps_supplycost * ps.ps_availqty) > (
  SELECT sum(q.ps_supplycost * q.ps_availqty) * {fraction} FROM stock.partsupp q
  JOIN stock.supplier t ON t.s_suppkey = q.ps_suppkey
  JOIN people.nation m ON m.n_nationkey = t.s_nationkey WHERE m.n_name = 'GERMANY')""",
    12: """SELECT l.l_shipmode,
  sum(CASE WHEN o.o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS high_line_count,
  sum(CASE WHEN o.o_orderpriority NOT IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END)
    AS low_line_count
FROM sales.orders o JOIN sales.lineitem l ON l.l_orderkey = o.o_orderkey
WHERE l.l_shipmode IN ('MAIL', 'SHIP') AND l.l_commitdate < l.l_receiptdate
AND l.l_shipdate < l.l_commitdate AND l.l_receiptdate >= DATE '1994-01-01'
AND l.l_receiptdate < DATE '1995-01-01' GROUP BY l.l_shipmode""",
    13: """SELECT q.c_count, count(*) AS custdist
FROM (SELECT c.c_custkey, count(o.o_orderkey) AS c_count FROM people.customer c
  LEFT JOIN sales.orders o ON o.o_custkey = c.c_custkey
    AND o.o_comment NOT LIKE '%special%requests%'
  GROUP BY c.c_custkey) q
GROUP BY q.c_count""",
    14: """SELECT 100.00 * sum(CASE WHEN p.p_type LIKE 'PROMO%'
    THEN l.l_extendedprice * (1 - l.l_discount) ELSE 0 END)
  / sum(l.l_extendedprice * (1 - l.l_discount)) AS promo_revenue
FROM sales.lineitem l JOIN stock.part p ON p.p_partkey = l.l_partkey
WHERE l.l_shipdate >= DATE '1995-09-01' AND l.l_shipdate < DATE '1995-10-01'""",
    15: """WITH revenue AS (SELECT l.l_suppkey AS supplier_no,
    sum(l.l_extendedprice * (1 - l.l_discount)) AS total_revenue FROM sales.lineitem l
  WHERE l.l_shipdate >= DATE '1996-01-01' AND l.l_shipdate < DATE '1996-04-01'
  GROUP BY l.l_suppkey)
SELECT s.s_suppkey, s.s_name, s.s_address, s.s_phone, r.total_revenue
FROM stock.supplier s JOIN revenue r ON r.supplier_no = s.s_suppkey
WHERE r.total_revenue = (SELECT max(x.total_revenue) FROM revenue x)""",
    16: """SELECT p.p_brand, p.p_type, p.p_size, count(DISTINCT ps.ps_suppkey) AS supplier_cnt
FROM stock.partsupp ps JOIN stock.part p ON p.p_partkey = ps.ps_partkey
WHERE p.p_brand <> 'Brand#45' AND p.p_type NOT LIKE 'MEDIUM POLISHED%'
AND p.p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
AND ps.ps_suppkey NOT IN (SELECT s.s_suppkey FROM stock.supplier s
  WHERE s.s_comment LIKE '%Customer%Complaints%')
GROUP BY p.p_brand, p.p_type, p.p_size""",
    17: """SELECT sum(l.l_extendedprice) / 7.0 AS avg_yearly
FROM sales.lineitem l JOIN stock.part p ON p.p_partkey = l.l_partkey
WHERE p.p_brand = 'Brand#23' AND p.p_container = 'MED BOX'
AND l.l_quantity < (SELECT 0.2 * avg(k.l_quantity) FROM sales.lineitem k
  WHERE k.l_partkey = p.p_partkey)""",
    18: """SELECT c.c_name, c.c_custkey, o.o_orderkey, o.o_orderdate, o.o_totalprice,
  sum(l.l_quantity) AS quantity
FROM people.customer c JOIN sales.orders o ON o.o_custkey = c.c_custkey
JOIN sales.lineitem l ON l.l_orderkey = o.o_orderkey
WHERE o.o_orderkey IN (SELECT k.l_orderkey FROM sales.lineitem k
  GROUP BY k.l_orderkey HAVING sum(k.l_quantity) > 300)
GROUP BY c.c_name, c.c_custkey, o.o_orderkey, o.o_orderdate, o.o_totalprice""",
    19: """SELECT sum(l.l_extendedprice * (1 - l.l_discount)) AS revenue
FROM sales.lineitem l JOIN stock.part p ON p.p_partkey = l.l_partkey
WHERE l.l_shipmode IN ('AIR', 'AIR REG') AND l.l_shipinstruct = 'DELIVER IN PERSON'
AND ((p.p_brand = 'Brand#12' AND p.p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
    AND l.l_quantity BETWEEN 1 AND 11 AND p.p_size BETWEEN 1 AND 5)
  OR (p.p_brand = 'Brand#23' AND p.p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
    AND l.l_quantity BETWEEN 10 AND 20 AND p.p_size BETWEEN 1 AND 10)
  OR (p.p_brand = 'Brand#34' AND p.p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
    AND l.l_quantity BETWEEN 20 AND 30 AND p.p_size BETWEEN 1 AND 15))""",
    20: """SELECT s.s_name, s.s_address FROM stock.supplier s
JOIN people.nation n ON n.n_nationkey = s.s_nationkey
WHERE n.n_name = 'CANADA' AND s.s_suppkey IN (SELECT ps.ps_suppkey FROM stock.partsupp ps
  WHERE ps.ps_partkey IN (SELECT p.p_partkey FROM stock.part p WHERE p.p_name LIKE 'forest%')
  AND ps.ps_availqty > (SELECT 0.5 * sum(l.l_quantity) FROM sales.lineitem l
    WHERE l.l_partkey = ps.ps_partkey AND l.l_suppkey = ps.ps_suppkey
    AND l.l_shipdate >= DATE '1994-01-01' AND l.l_shipdate < DATE '1995-01-01'))""",
    21: """SELECT s.s_name, count(*) AS numwait
FROM stock.supplier s JOIN sales.lineitem l ON l.l_suppkey = s.s_suppkey
JOIN sales.orders o ON o.o_orderkey = l.l_orderkey
JOIN people.nation n ON n.n_nationkey = s.s_nationkey
WHERE o.o_orderstatus = 'F' AND l.l_receiptdate > l.l_commitdate AND n.n_name = 'SAUDI ARABIA'
AND EXISTS (SELECT 1 FROM sales.lineitem k
  WHERE k.l_orderkey = l.l_orderkey AND k.l_suppkey <> l.l_suppkey)
AND NOT EXISTS (SELECT 1 FROM sales.lineitem j WHERE j.l_orderkey = l.l_orderkey
  AND j.l_suppkey <> l.l_suppkey AND j.l_receiptdate > j.l_commitdate)
GROUP BY s.s_name""",
    22: """SELECT q.cntrycode, count(*) AS numcust, sum(q.c_acctbal) AS totacctbal
FROM (SELECT substring(c.c_phone, 1, 2) AS cntrycode, c.c_acctbal FROM people.customer c
  WHERE substring(c.c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17')
  AND c.c_acctbal > (SELECT avg(d.c_acctbal) FROM people.customer d WHERE d.c_acctbal > 0.00
    AND substring(d.c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17'))
  AND NOT EXISTS (SELECT 1 FROM sales.orders o WHERE o.o_custkey = c.c_custkey)) q
GROUP BY q.cntrycode""",
}


def text_of_query(number: int, scale: float) -> str:
    """The text of a query; only Q11 has something of the scale in it."""
    return QUERIES[number].replace("{fraction}", f"{0.0001 / scale:.10f}")
