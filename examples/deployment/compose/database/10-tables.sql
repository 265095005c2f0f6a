-- Tables of some application, to have something to follow.
CREATE TABLE customer (id integer PRIMARY KEY, name text NOT NULL, city text NOT NULL);
CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer NOT NULL, amount numeric(10, 2) NOT NULL);
CREATE INDEX ON orders (customer_id);
INSERT INTO customer VALUES (1, 'Ada', 'London'), (2, 'Barbara', 'Paris'), (3, 'Grace', 'London');
INSERT INTO orders VALUES (1, 1, 10.00), (2, 1, 2.50), (3, 2, 7.25), (4, 3, 30.00);
