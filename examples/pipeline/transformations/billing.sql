-- The amount owed to each merchant, by currency: the third flow that reads the topic.
CREATE MATERIALIZED VIEW billing AS
SELECT merchant, currency, count(*) AS orders, sum(total_cents) AS cents
FROM orders
GROUP BY merchant, currency;

-- Reads the table billing, not the topic.
CREATE MATERIALIZED VIEW turnover AS
SELECT currency, sum(orders) AS orders, sum(cents) AS cents
FROM billing
GROUP BY currency;
