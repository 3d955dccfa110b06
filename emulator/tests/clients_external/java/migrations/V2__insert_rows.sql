INSERT fly.Customers (Name) VALUES (N'Ada 🌊'), (N'Béla');
GO
EXEC fly.PlaceOrder 1;
EXEC fly.PlaceOrder 1;
GO
UPDATE fly.Clients SET Score = fly.Half(Score) WHERE Name = N'Béla';
