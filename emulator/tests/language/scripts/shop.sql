-- The schema script of a small shop, as its developers keep it: run from the first line, again from the first line.
SET ANSI_NULLS ON
SET QUOTED_IDENTIFIER ON
GO
IF NOT EXISTS (SELECT * FROM sys.schemas WHERE name = N'sales')
    EXEC (N'CREATE SCHEMA sales AUTHORIZATION dbo')
GO
IF SCHEMA_ID(N'hr') IS NULL EXEC sp_executesql N'CREATE SCHEMA hr'
GO
IF TYPE_ID(N'dbo.Email') IS NULL CREATE TYPE dbo.Email FROM nvarchar(120) NULL
IF TYPE_ID(N'dbo.Flag') IS NULL CREATE TYPE dbo.Flag FROM bit NOT NULL
GO
DROP TRIGGER IF EXISTS sales.trOrderLineTotals
DROP VIEW IF EXISTS sales.OpenOrders
DROP PROCEDURE IF EXISTS sales.PlaceOrder, sales.ShipOrders, hr.Raise
DROP TABLE IF EXISTS sales.OrderLine, sales.[Order], sales.Customer, sales.Product, hr.Employee, hr.Department, dbo.Log_
DROP FUNCTION IF EXISTS sales.LineTotal, sales.OrdersOf, dbo.Split_
DROP SEQUENCE IF EXISTS sales.OrderNumber
GO
CREATE SEQUENCE sales.OrderNumber AS int START WITH 5000 INCREMENT BY 1
GO
CREATE TABLE hr.Department
(
    DepartmentID smallint IDENTITY(1, 1) NOT NULL,
    [Name] nvarchar(50) NOT NULL,
    ParentID smallint NULL,
    CONSTRAINT PK_Department PRIMARY KEY CLUSTERED (DepartmentID ASC)
        WITH (PAD_INDEX = OFF, IGNORE_DUP_KEY = OFF, ALLOW_ROW_LOCKS = ON) ON [PRIMARY],
    CONSTRAINT AK_Department_Name UNIQUE NONCLUSTERED ([Name]),
    CONSTRAINT FK_Department_Parent FOREIGN KEY (ParentID) REFERENCES hr.Department (DepartmentID)
) ON [PRIMARY]
GO
CREATE TABLE hr.Employee
(
    EmployeeID int IDENTITY(100, 1) NOT NULL CONSTRAINT PK_Employee PRIMARY KEY,
    DepartmentID smallint NOT NULL CONSTRAINT FK_Employee_Department REFERENCES hr.Department ON DELETE CASCADE,
    FirstName nvarchar(40) NOT NULL,
    LastName nvarchar(40) NOT NULL,
    FullName AS (FirstName + N' ' + LastName) PERSISTED,
    Mail dbo.Email,
    Salary money NOT NULL CONSTRAINT DF_Employee_Salary DEFAULT ((1000.00)),
    HiredOn date NOT NULL CONSTRAINT DF_Employee_Hired DEFAULT (CONVERT(date, GETDATE())),
    IsActive dbo.Flag CONSTRAINT DF_Employee_Active DEFAULT (1),
    rowguid uniqueidentifier ROWGUIDCOL NOT NULL CONSTRAINT DF_Employee_Guid DEFAULT (NEWID()),
    CONSTRAINT CK_Employee_Salary CHECK (Salary >= 0 AND Salary < 1000000)
)
GO
CREATE TABLE sales.Customer
(
    CustomerID int IDENTITY NOT NULL PRIMARY KEY,
    Code char(6) NOT NULL UNIQUE,
    [Name] nvarchar(100) NOT NULL,
    Region varchar(10) NOT NULL DEFAULT UPPER(LEFT('north', 1)) + 'ORTH',
    CreatedAt datetime2(3) NOT NULL DEFAULT DATEADD(day, -1, SYSUTCDATETIME()),
    Version_ rowversion NOT NULL
)
CREATE TABLE sales.Product
(
    ProductID int NOT NULL PRIMARY KEY,
    [Name] nvarchar(60) NOT NULL,
    Price decimal(10, 2) NOT NULL CHECK (Price > 0),
    Stock int NOT NULL DEFAULT 0,
    Value_ AS Price * Stock,
    Discontinued bit NOT NULL DEFAULT 0
)
GO
CREATE TABLE sales.[Order]
(
    OrderID int NOT NULL CONSTRAINT DF_Order_ID DEFAULT (NEXT VALUE FOR sales.OrderNumber),
    CustomerID int NOT NULL,
    PlacedAt datetime NOT NULL DEFAULT GETDATE(),
    Status_ tinyint NOT NULL DEFAULT (0),
    Total decimal(12, 2) NOT NULL DEFAULT (0),
    ShippedAt datetime NULL,
    CONSTRAINT PK_Order PRIMARY KEY (OrderID)
)
GO
ALTER TABLE sales.[Order] WITH CHECK ADD CONSTRAINT FK_Order_Customer FOREIGN KEY (CustomerID)
    REFERENCES sales.Customer (CustomerID) ON UPDATE CASCADE ON DELETE NO ACTION
GO
ALTER TABLE sales.[Order] CHECK CONSTRAINT FK_Order_Customer
GO
CREATE TABLE sales.OrderLine
(
    OrderID int NOT NULL,
    LineNo_ smallint NOT NULL,
    ProductID int NOT NULL,
    Quantity smallint NOT NULL CONSTRAINT CK_Line_Quantity CHECK (Quantity BETWEEN 1 AND 999),
    Price decimal(10, 2) NOT NULL,
    CONSTRAINT PK_OrderLine PRIMARY KEY (OrderID, LineNo_),
    CONSTRAINT FK_Line_Order FOREIGN KEY (OrderID) REFERENCES sales.[Order] (OrderID) ON DELETE CASCADE,
    INDEX IX_Line_Product NONCLUSTERED (ProductID) INCLUDE (Quantity)
)
CREATE TABLE dbo.Log_ (LogID int IDENTITY PRIMARY KEY, At_ datetime2 DEFAULT SYSDATETIME(), What nvarchar(200))
GO
ALTER TABLE sales.OrderLine ADD CONSTRAINT FK_Line_Product FOREIGN KEY (ProductID) REFERENCES sales.Product (ProductID)
CREATE UNIQUE NONCLUSTERED INDEX UX_Employee_Mail ON hr.Employee (Mail) WHERE Mail IS NOT NULL
CREATE INDEX IX_Order_Customer ON sales.[Order] (CustomerID, PlacedAt DESC) INCLUDE (Status_, Total) WITH (FILLFACTOR = 90)
GO
CREATE FUNCTION sales.LineTotal (@quantity int, @price decimal(10, 2), @discount decimal(4, 3) = 0)
RETURNS decimal(12, 2) WITH SCHEMABINDING
AS
BEGIN
    RETURN ROUND(@quantity * @price * (1 - @discount), 2)
END
GO
CREATE FUNCTION sales.OrdersOf (@customer int)
RETURNS TABLE
AS
RETURN SELECT o.OrderID, o.Total, (SELECT COUNT(*) FROM sales.OrderLine l WHERE l.OrderID = o.OrderID) AS [Lines]
       FROM sales.[Order] o WHERE o.CustomerID = @customer;
GO
CREATE FUNCTION dbo.Split_ (@text varchar(max), @by char(1))
RETURNS @parts TABLE (pos int IDENTITY(1, 1) PRIMARY KEY, part varchar(100) NULL)
AS
BEGIN
    DECLARE @at int = CHARINDEX(@by, @text)
    WHILE @at > 0
    BEGIN
        INSERT @parts (part) SELECT LTRIM(RTRIM(LEFT(@text, @at - 1)))
        SELECT @text = SUBSTRING(@text, @at + 1, LEN(@text)), @at = CHARINDEX(@by, @text)
    END
    IF LEN(@text) > 0 INSERT INTO @parts (part) VALUES (@text)
    RETURN
END
GO
CREATE VIEW sales.OpenOrders
AS
SELECT o.OrderID, c.[Name] AS Customer, o.Total, SUM(sales.LineTotal(l.Quantity, l.Price, DEFAULT)) AS Computed
FROM sales.[Order] AS o
INNER JOIN sales.Customer AS c ON c.CustomerID = o.CustomerID
LEFT OUTER JOIN sales.OrderLine AS l ON l.OrderID = o.OrderID
WHERE o.Status_ = 0
GROUP BY o.OrderID, c.[Name], o.Total
GO
CREATE TRIGGER sales.trOrderLineTotals ON sales.OrderLine
AFTER INSERT, UPDATE, DELETE
AS
BEGIN
    IF @@ROWCOUNT = 0 RETURN;
    SET NOCOUNT ON;
    WITH touched AS (SELECT OrderID FROM inserted UNION SELECT OrderID FROM deleted)
    UPDATE o
    SET Total = ISNULL((SELECT SUM(l.Quantity * l.Price) FROM sales.OrderLine AS l WHERE l.OrderID = o.OrderID), 0)
    FROM sales.[Order] AS o INNER JOIN touched AS t ON t.OrderID = o.OrderID;

    UPDATE p SET Stock -= d.Quantity
    FROM sales.Product AS p
    JOIN (SELECT ProductID, SUM(Quantity) AS Quantity FROM inserted GROUP BY ProductID) AS d ON d.ProductID = p.ProductID;

    IF EXISTS (SELECT 1 FROM sales.Product AS p JOIN inserted AS i ON i.ProductID = p.ProductID WHERE p.Stock < 0)
    BEGIN
        RAISERROR (N'Out of stock.', 16, 1);
        ROLLBACK TRANSACTION;
    END
END
GO
CREATE PROCEDURE sales.PlaceOrder
    @CustomerID int,
    @Lines varchar(max), -- product:quantity,product:quantity
    @OrderID int = NULL OUTPUT,
    @Note nvarchar(50) = N'none'
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @ids TABLE (OrderID int NOT NULL);
    IF NOT EXISTS (SELECT * FROM sales.Customer WHERE CustomerID = @CustomerID) RETURN 1;
    BEGIN TRY
        BEGIN TRANSACTION;
        INSERT INTO sales.[Order] (CustomerID) OUTPUT inserted.OrderID INTO @ids VALUES (@CustomerID);
        SELECT @OrderID = OrderID FROM @ids;
        INSERT INTO sales.OrderLine (OrderID, LineNo_, ProductID, Quantity, Price)
        SELECT @OrderID, s.pos, p.ProductID, CAST(SUBSTRING(s.part, CHARINDEX(':', s.part) + 1, 10) AS smallint), p.Price
        FROM dbo.Split_(@Lines, ',') AS s
        JOIN sales.Product AS p ON p.ProductID = CAST(LEFT(s.part, CHARINDEX(':', s.part) - 1) AS int);
        INSERT INTO dbo.Log_ (What) VALUES (CONCAT(N'order ', @OrderID, N', ', @Note));
        COMMIT TRANSACTION;
        RETURN 0;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        INSERT INTO dbo.Log_ (What) VALUES (LEFT(ERROR_MESSAGE(), 200));
        THROW;
    END CATCH
END
GO
CREATE PROC sales.ShipOrders @most int = 10 AS
DECLARE @id int, @shipped int = 0
DECLARE due CURSOR LOCAL FAST_FORWARD FOR SELECT TOP (@most) OrderID FROM sales.OpenOrders ORDER BY OrderID
OPEN due
FETCH NEXT FROM due INTO @id
WHILE @@FETCH_STATUS = 0
BEGIN
    UPDATE sales.[Order] SET Status_ = 1, ShippedAt = GETDATE() WHERE OrderID = @id
    SET @shipped = @shipped + @@ROWCOUNT
    FETCH NEXT FROM due INTO @id
END
CLOSE due
DEALLOCATE due
RETURN @shipped
GO
SET IDENTITY_INSERT hr.Department ON
INSERT INTO hr.Department (DepartmentID, [Name], ParentID) VALUES (1, N'Board', NULL), (10, N'Sales', 1)
SET IDENTITY_INSERT hr.Department OFF
INSERT INTO hr.Department ([Name], ParentID) VALUES (N'Warehouse', 1)
INSERT INTO hr.Employee (DepartmentID, FirstName, LastName, Mail)
VALUES (10, N'Åse', N'Berg', N'ase@shop.test'), (10, N'Jo', N'Lund', NULL), (11, N'Kim', N'Dahl', NULL)
INSERT sales.Customer (Code, [Name]) VALUES ('C00001', N'First'), ('C00002', N'Second')
INSERT sales.Product (ProductID, [Name], Price, Stock) VALUES (1, N'Nail', 0.10, 5000), (2, N'Hammer', 15.00, 3)
GO
EXEC sp_rename N'sales.OrderLine.LineNo_', N'LineNumber', N'COLUMN'
EXEC sp_rename N'sales.OrderLine.IX_Line_Product', N'IX_OrderLine_Product', N'INDEX'
GO
EXEC sp_rename 'sales.OrderLine.LineNumber', 'LineNo_', 'COLUMN';
ALTER TABLE hr.Employee ADD Phone varchar(20) NULL, Grade tinyint NOT NULL CONSTRAINT DF_Employee_Grade DEFAULT (1) WITH VALUES
ALTER TABLE hr.Employee ALTER COLUMN Phone varchar(30) NULL
ALTER TABLE hr.Employee DROP CONSTRAINT DF_Employee_Grade
ALTER TABLE hr.Employee DROP COLUMN Grade
ALTER INDEX ALL ON hr.Employee REBUILD
ALTER INDEX UX_Employee_Mail ON hr.Employee REORGANIZE
UPDATE STATISTICS sales.[Order]
GO
