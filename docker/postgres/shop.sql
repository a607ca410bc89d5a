-- A shop: orders that grow and change, and customers.
CREATE TABLE customers (
    id integer PRIMARY KEY,
    name text NOT NULL
);
INSERT INTO customers SELECT n, 'customer ' || n FROM generate_series(1, 1000) AS n;

CREATE TABLE orders (
    id bigint PRIMARY KEY,
    customer integer NOT NULL REFERENCES customers,
    amount numeric(10, 2) NOT NULL,
    updated_at timestamptz NOT NULL
);
INSERT INTO orders
SELECT n, 1 + n % 1000, (n % 9999) / 100.0, now() - interval '30 days' + n * interval '25 seconds'
FROM generate_series(1, 100000) AS n;
CREATE INDEX orders_updated_at ON orders (updated_at);
