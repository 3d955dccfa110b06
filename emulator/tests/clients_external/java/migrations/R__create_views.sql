CREATE OR ALTER VIEW fly.Totals AS
SELECT c.Name, c.Code, c.Score, COUNT(o.Id) AS Orders
FROM fly.Customers c LEFT JOIN fly.Orders o ON o.CustomerId = c.Id GROUP BY c.Name, c.Code, c.Score;
