CREATE SEQUENCE fly.Numbers AS bigint START WITH 100;
CREATE TYPE fly.Name FROM nvarchar(40) NOT NULL;
GO
CREATE TABLE fly.Customers (
    Id int IDENTITY CONSTRAINT PK_FlyCustomers PRIMARY KEY,
    Name fly.Name,
    Code AS UPPER(LEFT(Name, 3)),
    Score decimal(5, 2) NOT NULL CONSTRAINT DF_FlyScore DEFAULT ${score},
    CONSTRAINT CK_FlyScore CHECK (Score >= 0)
);
CREATE TABLE fly.Orders (
    Id bigint NOT NULL CONSTRAINT DF_FlyId DEFAULT NEXT VALUE FOR fly.Numbers PRIMARY KEY,
    CustomerId int NOT NULL CONSTRAINT FK_FlyOrders REFERENCES fly.Customers (Id) ON DELETE CASCADE,
    ParentId bigint NULL CONSTRAINT FK_FlyParent REFERENCES fly.Orders (Id),
    Placed datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME()
);
CREATE INDEX IX_FlyPlaced ON fly.Orders (Placed DESC) INCLUDE (CustomerId);
GO
CREATE FUNCTION fly.Half (@value decimal(5, 2)) RETURNS decimal(5, 2) AS
BEGIN
    RETURN @value / 2; -- a semicolon ends no batch
END
GO
CREATE TRIGGER fly.OrdersPlaced ON fly.Orders AFTER INSERT AS
    UPDATE fly.Customers SET Score += 1 WHERE Id IN (SELECT CustomerId FROM inserted);
GO
CREATE PROCEDURE fly.PlaceOrder @customer int AS INSERT fly.Orders (CustomerId) VALUES (@customer);
GO
CREATE SYNONYM fly.Clients FOR fly.Customers;
